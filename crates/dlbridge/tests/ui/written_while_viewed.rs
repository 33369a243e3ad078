//! What is viewed is not written meanwhile.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let view = tensor.view::<i32>().unwrap();
    tensor.view_mut::<i32>().unwrap().fill(0);
    println!("{:?}", view.get(&[0]));
}
