//! An exclusive tensor has one owner; `into_shared` makes one that can be cloned.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let _ = tensor.clone();
}
