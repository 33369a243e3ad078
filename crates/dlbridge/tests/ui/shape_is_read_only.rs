//! What was checked cannot be changed afterwards.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    tensor.shape()[0] = 9;
}
