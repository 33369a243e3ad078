//! What is to be written to a file is borrowed from its tensor.

use safetensors::tensor::TensorView;

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
    let view = TensorView::try_from(&tensor).unwrap();
    drop(tensor);
    println!("{:?}", view.shape());
}
