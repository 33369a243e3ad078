//! An array view is borrowed from its tensor.

fn main() {
    let tensor = dlbridge::Tensor::from(ndarray::array![1, 2, 3]);
    let view = tensor.view_as::<ndarray::ArrayView1<i32>>().unwrap();
    drop(tensor);
    println!("{view:?}");
}
