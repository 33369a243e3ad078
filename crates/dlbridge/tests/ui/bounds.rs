//! Types that lack what a function asks for.

#![allow(dead_code)]

mod raw_pointer_is_not_send {
    //! A descriptor that was given away is the caller's to move; the compiler does not vouch for it.

    fn needs_send<T: Send>(_: T) {}

    fn main() {
        needs_send(dlbridge::Tensor::from(vec![1, 2, 3]).into_raw()); //~ E0277
    }
}

mod owner_is_not_send {
    //! A tensor may be dropped on any thread, so its owner must be `Send`.

    use std::rc::Rc;

    struct Owner(Vec<f32>, Rc<()>);

    impl AsMut<[f32]> for Owner {
        fn as_mut(&mut self) -> &mut [f32] {
            &mut self.0
        }
    }

    fn main() {
        let owner = Owner(vec![1.0], Rc::new(()));
        let _ = dlbridge::Tensor::builder(owner).build::<f32>(); //~ E0277 E0599
    }
}

mod shared_owner_is_not_writable {
    //! What is only lent immutably is not exported writable.

    struct Owner([f32; 2]);

    impl AsRef<[f32]> for Owner {
        fn as_ref(&self) -> &[f32] {
            &self.0
        }
    }

    fn main() {
        let _ = dlbridge::Tensor::builder(Owner([1.0, 2.0])).build_read_only::<f32>();
        let _ = dlbridge::Tensor::builder(Owner([1.0, 2.0])).build::<f32>(); //~ E0277
    }
}

mod writable_bools {
    //! Whoever writes through another dtype could leave bytes that are no `bool`.

    fn main() {
        let builder = dlbridge::Tensor::builder(vec![true, false]).dtype(dlbridge::DType::U8);
        let _ = builder.build::<bool>(); //~ E0277
    }
}

mod no_element {
    //! The message names the features whose crates have more elements.

    fn main() {
        let _ = dlbridge::Tensor::from(vec![1]).view::<char>(); //~ E0277
    }
}

mod no_shape {
    //! A tuple, and lists of other numbers, are no shapes.

    use dlbridge::{DType, Tensor};

    fn main() {
        let _ = Tensor::zeros(DType::F32, (2, 3)); //~ E0277
        let _ = Tensor::zeros(DType::F32, [2_u32, 3]); //~ E0277
    }
}

mod bool_slice {
    //! Foreign bytes need not be 0 or 1, so no `&bool` is formed over them.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![true, false]);
        let _ = tensor.as_slice::<bool>(); //~ E0277
        let _ = tensor.as_slice_mut::<bool>(); //~ E0277
        let _ = tensor.view_as::<ndarray::ArrayView1<bool>>(); //~ E0277
    }
}

mod tensor_is_not_clone {
    //! An exclusive tensor has one owner; `into_shared` makes one that can be cloned.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let _ = tensor.clone(); //~ E0599
    }
}

mod cells_are_read_only {
    //! A cell can be read, and neither written, made, nor borrowed through.

    use dlbridge::{ReadCell, Tensor};

    fn main() {
        let tensor = Tensor::from(vec![1, 2, 3]);
        let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
        cells[0].set(1); //~ E0599
        let value: &i32 = &*cells[0]; //~ E0614
        let made = ReadCell(1); //~ E0423
    }
}

mod descriptor_is_private {
    //! No public field holds what was checked.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let handle = &mut tensor.0; //~ E0616
        let view = tensor.view::<i32>().unwrap();
        let elements = view.elements; //~ E0616
        let borrowed = tensor.as_tensor_ref();
        let inner = borrowed.0; //~ E0616
    }
}

mod view_is_no_copy {
    //! A copy is owned: a view is not a copy, nor is memory made writable through a shared reference.

    use dlbridge::{Tensor, TensorMut};
    use ndarray::{ArrayView1, ArrayViewMut1};

    fn main() {
        let tensor = Tensor::from(vec![1, 2, 3]);
        let _ = tensor.copy_as::<ArrayView1<i32>>(); //~ E0277
        let _ = tensor.view_as::<ArrayViewMut1<i32>>(); //~ E0271 E0277

        let mut numbers = [1, 2, 3];
        let borrowed = TensorMut::from(&mut numbers[..]);
        let _ = borrowed.view_as::<&mut [i32]>(); //~ E0271 E0277
    }
}

fn main() {}
