//! A mutable matrix view has its tensor to itself.

use faer::ColMut;
use nalgebra::DVectorViewMut;

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
    let first = tensor.view_mut_as::<DVectorViewMut<f64>>().unwrap();
    let second = tensor.view_mut_as::<ColMut<f64>>().unwrap();
    println!("{first} {second:?}");
}
