//! A slice is borrowed from its tensor.

fn main() {
    let slice = {
        let tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
        tensor.as_slice::<i32>().unwrap()
    };
    println!("{slice:?}");
}
