//! An array view is borrowed from its tensor.

fn main() {
    let tensor = dlbridge::Tensor::from(ndarray::array![1, 2, 3]);
    let view = tensor.as_array::<i32, ndarray::Ix1>().unwrap();
    drop(tensor);
    println!("{view:?}");
}
