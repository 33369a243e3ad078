//! Borrows that outlive what they borrow.

#![allow(dead_code)]

mod array_of_cells_outlives_tensor {
    //! An array of cells is borrowed from its tensor.

    fn main() {
        let tensor = dlbridge::Tensor::from(ndarray::array![1, 2, 3]);
        let cells = tensor.view_as::<ndarray::ArrayView1<dlbridge::ReadCell<i32>>>().unwrap();
        drop(tensor); //~ E0505
        println!("{}", cells[0].get());
    }
}

mod array_view_outlives_tensor {
    //! An array view is borrowed from its tensor.

    fn main() {
        let tensor = dlbridge::Tensor::from(ndarray::array![1, 2, 3]);
        let view = tensor.view_as::<ndarray::ArrayView1<i32>>().unwrap();
        drop(tensor); //~ E0505
        println!("{view:?}");
    }
}

mod cells_outlive_tensor {
    //! What a view lends is borrowed from the tensor, though the view may go.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
        drop(tensor); //~ E0505
        println!("{cells:?}");
    }
}

mod image_outlives_tensor {
    //! An image over a tensor's memory is borrowed from it, and so is a tensor over an image's.

    use dlbridge::{Tensor, TensorRef};
    use image::{ImageBuffer, Rgb, RgbImage};

    fn main() {
        let mut tensor = Tensor::from(RgbImage::new(2, 2));
        let image = tensor.view_as::<ImageBuffer<Rgb<u8>, &[u8]>>().unwrap();
        let mut other = tensor.view_mut_as::<ImageBuffer<Rgb<u8>, &mut [u8]>>().unwrap(); //~ E0502
        other.put_pixel(0, 0, Rgb([1, 2, 3]));
        println!("{:?}", image.get_pixel(0, 0));

        let mut image = RgbImage::new(2, 2);
        let tensor = TensorRef::from(&image);
        image.put_pixel(0, 0, Rgb([1, 2, 3])); //~ E0502
        println!("{tensor:?}");
    }
}

mod iterator_outlives_tensor {
    //! An iterator is borrowed from the tensor, though the view may go.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let mut iter = tensor.view::<i32>().unwrap().into_iter();
        drop(tensor); //~ E0505
        println!("{:?}", iter.next());
    }
}

mod matrix_view_outlives_tensor {
    //! A matrix view is borrowed from its tensor, whichever crate it is of.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
        let nalgebra = tensor.view_as::<nalgebra::DVectorView<f64>>().unwrap();
        let faer = tensor.view_as::<faer::ColRef<f64>>().unwrap();
        drop(tensor); //~ E0505
        println!("{nalgebra} {faer:?}");
    }
}

mod shape_outlives_tensor {
    //! A view's shape is borrowed from the tensor.

    fn main() {
        let shape = {
            let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
            tensor.view::<i32>().unwrap().shape() //~ E0597
        };
        println!("{shape:?}");
    }
}

mod slice_outlives_tensor {
    //! A slice is borrowed from its tensor.

    fn main() {
        let slice = {
            let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
            tensor.as_slice::<i32>().unwrap() //~ E0597
        };
        println!("{slice:?}");
    }
}

mod view_outlives_tensor {
    //! A view is borrowed from its tensor.

    fn main() {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        let view = tensor.view::<i32>().unwrap();
        drop(tensor); //~ E0505
        println!("{view:?}");
    }
}

mod tensor_ref_outlives_array {
    //! A borrowed tensor is borrowed from its array.

    use dlbridge::{TensorMut, TensorRef};

    fn main() {
        let mut array = ndarray::array![[1.0, 2.0]];
        let tensor = TensorRef::from(&array);
        array[[0, 0]] = 3.0; //~ E0502
        println!("{tensor:?}");

        let mut tensor = TensorMut::from(&mut array);
        println!("{array:?}"); //~ E0502
        tensor.view_mut::<f64>().unwrap().fill(0.0);
    }
}

mod tensor_ref_outlives_matrix {
    //! A borrowed tensor is borrowed from its matrix, whichever crate it is of.

    use dlbridge::{TensorMut, TensorRef};

    fn main() {
        let mut matrix = nalgebra::DMatrix::<f64>::zeros(2, 2);
        let tensor = TensorRef::from(&matrix);
        matrix.fill(1.0); //~ E0502
        println!("{tensor:?}");

        let mut matrix = faer::Mat::<f64>::zeros(2, 2);
        let mut tensor = TensorMut::from(&mut matrix);
        println!("{matrix:?}"); //~ E0502
        tensor.view_mut::<f64>().unwrap().fill(0.0);
    }
}

mod tensor_ref_outlives_slice {
    //! A borrowed tensor is borrowed from its memory.

    use dlbridge::{Tensor, TensorMut, TensorRef};

    fn main() {
        let (tensor, tensor_mut, of_tensor) = {
            let (values, mut others) = (vec![1.0_f32], vec![2.0_f32]);
            let owner = Tensor::from(vec![3.0_f32]);
            (TensorRef::from(&values[..]), TensorMut::from(&mut others[..]), owner.as_tensor_ref()) //~ E0597 E0597 E0597
        };
        println!("{tensor:?} {tensor_mut:?} {of_tensor:?}");
    }
}

mod borrowed_slice_as_tensor {
    //! Only a slice that lives for ever becomes a tensor.

    fn main() {
        let values = vec![1.0_f32, 2.0];
        let tensor = dlbridge::Tensor::from(&values[..]); //~ E0597
        drop(values); //~ E0505
        println!("{tensor:?}");
    }
}

mod borrowing_owner {
    //! A tensor lives as long as another language wants, so its owner must not borrow.

    fn main() {
        let mut values = vec![1.0_f32, 2.0];
        let _ = dlbridge::Tensor::builder(&mut values[..]).build::<f32>(); //~ E0597
    }
}

mod slice_across_into_raw {
    //! What is lent ends before the tensor is given away, shared, or taken apart.

    use dlbridge::Tensor;

    fn main() {
        let tensor = Tensor::from(vec![1, 2, 3]);
        let slice = tensor.as_slice::<i32>().unwrap();
        let raw = tensor.into_raw(); //~ E0505
        println!("{slice:?} {raw:?}");

        let tensor = Tensor::from(vec![1, 2, 3]);
        let slice = tensor.as_slice::<i32>().unwrap();
        let shared = tensor.into_shared(); //~ E0505
        println!("{slice:?} {shared:?}");

        let tensor = Tensor::from(vec![1, 2, 3]);
        let slice = tensor.as_slice::<i32>().unwrap();
        let owner = tensor.into_owner::<Vec<i32>>(); //~ E0505
        println!("{slice:?} {owner:?}");
    }
}

mod static_view {
    //! A view lives no longer than what it was made of.

    use dlbridge::{Tensor, TensorRef};

    fn of_a_tensor(tensor: &Tensor) -> &'static [i32] {
        tensor.view_as().unwrap() //~ error
    }

    fn of_a_borrow(numbers: &[i32]) -> &'static [i32] {
        TensorRef::from(numbers).into_as().unwrap() //~ error
    }

    fn of_an_assumption(tensor: &Tensor) -> &'static [i32] {
        // SAFETY: no code writes.
        unsafe { tensor.assume_frozen() }.into_as().unwrap() //~ error
    }

    fn main() {
        let tensor = Tensor::from(vec![1]);
        println!("{:?}", of_a_tensor(&tensor));
        println!("{:?}", of_a_borrow(&[1]));
        println!("{:?}", of_an_assumption(&tensor));
    }
}

fn main() {}
