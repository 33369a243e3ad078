//! Writing to what is borrowed, and mutable borrows of what is shared.

#![allow(dead_code)]

mod two_views_of_one_tensor {
    //! A mutable view, of whatever crate, has its tensor to itself.

    use dlbridge::{Tensor, TensorMut};
    use ndarray::{ArrayView1, ArrayViewMut1};

    fn main() {
        let mut tensor = Tensor::from(vec![1, 2, 3]);
        let mut first = tensor.view_mut_as::<ArrayViewMut1<i32>>().unwrap();
        let second = tensor.view_mut_as::<&mut [i32]>().unwrap(); //~ E0499
        first[0] = second[0];

        let mut first = tensor.view_mut_as::<ArrayViewMut1<i32>>().unwrap();
        let second = tensor.view_as::<ArrayView1<i32>>().unwrap(); //~ E0502
        first[0] = second[0];

        let mut numbers = [1, 2, 3];
        let borrowed = TensorMut::from(&mut numbers[..]);
        let first: &mut [i32] = borrowed.into_as().unwrap();
        let second: &mut [i32] = borrowed.into_as().unwrap(); //~ E0382
        first[0] = second[0];
    }
}

mod matrix_is_borrowed_mutably {
    //! A mutable matrix view has its tensor to itself.

    use faer::ColMut;
    use nalgebra::DVectorViewMut;

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
        let first = tensor.view_mut_as::<DVectorViewMut<f64>>().unwrap();
        let second = tensor.view_mut_as::<ColMut<f64>>().unwrap(); //~ E0499
        println!("{first} {second:?}");
    }
}

mod two_mutable_slices {
    //! Writing needs the tensor to oneself.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let first = tensor.as_slice_mut::<i32>().unwrap();
        let second = tensor.as_slice_mut::<i32>().unwrap(); //~ E0499
        first[0] = second[0];
    }
}

mod owned_slice_is_taken_apart_while_borrowed {
    //! The tensor in a slice can be moved out only while the slice is not borrowed.

    fn main() {
        let slice = dlbridge::Tensor::from(vec![1, 2]).into_slice::<i32>().unwrap();
        let first = &slice[0];
        drop(slice.into_tensor()); //~ E0505
        println!("{first}");

        let mut slice = dlbridge::Tensor::from(vec![1, 2]).into_slice_mut::<i32>().unwrap();
        let first = &slice[0];
        slice[0] = 3; //~ E0502
        println!("{first}");
    }
}

mod written_while_cells_are_borrowed {
    //! Cells stand others' writing, but not ours.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
        tensor.as_slice_mut::<i32>().unwrap()[0] = 0; //~ E0502
        println!("{cells:?}");
    }
}

mod written_while_viewed {
    //! What is viewed is not written meanwhile.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let view = tensor.view::<i32>().unwrap();
        tensor.view_mut::<i32>().unwrap().fill(0); //~ E0502
        println!("{:?}", view.get([0]));
    }
}

mod cells_are_not_moved {
    //! A cell stays where it is.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
        let moved = cells[0]; //~ E0508
        println!("{moved:?}");
    }
}

mod shape_is_read_only {
    //! What was checked cannot be changed afterwards.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        tensor.shape()[0] = 9; //~ E0594
    }
}

mod mutable_from_shared_view {
    //! A mutable tensor needs a mutable borrow, even of a view that is itself mutable.

    fn write(view: &ndarray::ArrayViewMut1<'_, i32>) {
        dlbridge::TensorMut::from(&mut *view).as_slice_mut::<i32>().unwrap().fill(0); //~ E0596
    }

    fn main() {
        write(&ndarray::array![1, 2, 3].view_mut());
    }
}

mod written_through_shared_reference {
    //! A shared reference gives no mutable slice.

    fn main() {
        let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let shared = &tensor;
        shared.as_slice_mut::<i32>().unwrap()[0] = 1; //~ E0596
    }
}

fn main() {}
