//! A borrowed tensor is borrowed from its array.

use dlbridge::{TensorMut, TensorRef};

fn main() {
    let mut array = ndarray::array![[1.0, 2.0]];
    let tensor = TensorRef::from(&array);
    array[[0, 0]] = 3.0;
    println!("{tensor:?}");

    let mut tensor = TensorMut::from(&mut array);
    println!("{array:?}");
    tensor.view_mut::<f64>().unwrap().fill(0.0);
}
