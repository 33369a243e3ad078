//! A copy is owned: a view is not a copy, nor is memory made writable through a shared reference.

use dlbridge::{Tensor, TensorMut};
use ndarray::{ArrayView1, ArrayViewMut1};

fn main() {
    let tensor = Tensor::from(vec![1, 2, 3]);
    let _ = tensor.copy_as::<ArrayView1<i32>>();
    let _ = tensor.view_as::<ArrayViewMut1<i32>>();

    let mut numbers = [1, 2, 3];
    let borrowed = TensorMut::from(&mut numbers[..]);
    let _ = borrowed.view_as::<&mut [i32]>();
}
