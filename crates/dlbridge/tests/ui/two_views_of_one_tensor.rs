//! A mutable view, of whatever crate, has its tensor to itself.

use dlbridge::{Tensor, TensorMut};
use ndarray::{ArrayView1, ArrayViewMut1};

fn main() {
    let mut tensor = Tensor::from(vec![1, 2, 3]);
    let mut first = tensor.view_mut_as::<ArrayViewMut1<i32>>().unwrap();
    let second = tensor.view_mut_as::<&mut [i32]>().unwrap();
    first[0] = second[0];

    let mut first = tensor.view_mut_as::<ArrayViewMut1<i32>>().unwrap();
    let second = tensor.view_as::<ArrayView1<i32>>().unwrap();
    first[0] = second[0];

    let mut numbers = [1, 2, 3];
    let borrowed = TensorMut::from(&mut numbers[..]);
    let first: &mut [i32] = borrowed.into_as().unwrap();
    let second: &mut [i32] = borrowed.into_as().unwrap();
    first[0] = second[0];
}
