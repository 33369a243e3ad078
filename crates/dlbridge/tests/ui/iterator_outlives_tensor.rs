//! An iterator is borrowed from the tensor, though the view may go.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let mut iter = tensor.view::<i32>().unwrap().into_iter();
    drop(tensor);
    println!("{:?}", iter.next());
}
