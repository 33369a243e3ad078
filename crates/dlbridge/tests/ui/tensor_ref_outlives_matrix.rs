//! A borrowed tensor is borrowed from its matrix, whichever crate it is of.

use dlbridge::{TensorMut, TensorRef};

fn main() {
    let mut matrix = nalgebra::DMatrix::<f64>::zeros(2, 2);
    let tensor = TensorRef::from(&matrix);
    matrix.fill(1.0);
    println!("{tensor:?}");

    let mut matrix = faer::Mat::<f64>::zeros(2, 2);
    let mut tensor = TensorMut::from(&mut matrix);
    println!("{matrix:?}");
    tensor.view_mut::<f64>().unwrap().fill(0.0);
}
