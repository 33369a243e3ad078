//! What a view lends is borrowed from the tensor, though the view may go.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let cells = tensor.view::<i32>().unwrap().as_cells().unwrap();
    drop(tensor);
    println!("{cells:?}");
}
