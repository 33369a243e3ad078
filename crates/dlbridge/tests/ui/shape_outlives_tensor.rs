//! A view's shape is borrowed from the tensor.

fn main() {
    let shape = {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        tensor.view::<i32>().unwrap().shape()
    };
    println!("{shape:?}");
}
