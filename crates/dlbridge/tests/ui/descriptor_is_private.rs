//! No public field holds what was checked.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let handle = &mut tensor.0;
    let view = tensor.view::<i32>().unwrap();
    let elements = view.elements;
    let borrowed = tensor.as_tensor_ref();
    let inner = borrowed.0;
}
