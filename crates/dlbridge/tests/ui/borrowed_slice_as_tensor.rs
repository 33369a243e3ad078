//! Only a slice that lives for ever becomes a tensor.

fn main() {
    let values = vec![1.0_f32, 2.0];
    let tensor = dlbridge::Tensor::from(&values[..]);
    drop(values);
    println!("{tensor:?}");
}
