//! Whoever writes through another dtype could leave bytes that are no `bool`.

fn main() {
    let builder = dlbridge::Tensor::builder(vec![true, false]).dtype(dlbridge::DType::U8);
    let _ = builder.build::<bool>();
}
