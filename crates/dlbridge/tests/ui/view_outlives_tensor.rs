//! A view is borrowed from its tensor.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let view = tensor.view::<i32>().unwrap();
    drop(tensor);
    println!("{view:?}");
}
