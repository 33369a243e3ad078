//! A tensor lives as long as another language wants, so its owner must not borrow.

fn main() {
    let mut values = vec![1.0_f32, 2.0];
    let _ = dlbridge::Tensor::builder(&mut values[..]).build::<f32>();
}
