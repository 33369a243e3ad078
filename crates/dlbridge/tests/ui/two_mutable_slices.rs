//! Writing needs the tensor to oneself.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let first = tensor.as_slice_mut::<i32>().unwrap();
    let second = tensor.as_slice_mut::<i32>().unwrap();
    first[0] = second[0];
}
