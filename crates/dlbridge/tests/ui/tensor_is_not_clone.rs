//! An exclusive tensor has one owner; share it by way of an `Arc`.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let _ = tensor.clone();
}
