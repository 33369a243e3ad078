//! An array of cells is borrowed from its tensor.

fn main() {
    let tensor = dlbridge::Tensor::from(ndarray::array![1, 2, 3]);
    let cells = tensor.view_as::<ndarray::ArrayView1<dlbridge::ReadCell<i32>>>().unwrap();
    drop(tensor);
    println!("{}", cells[0].get());
}
