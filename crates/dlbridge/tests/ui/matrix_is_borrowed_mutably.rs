//! A mutable matrix view has its tensor to itself.

use nalgebra::{Dyn, U1};

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
    let first = tensor.as_matrix_mut::<f64, Dyn, U1>().unwrap();
    let second = tensor.as_col_mut::<f64>().unwrap();
    println!("{first} {second:?}");
}
