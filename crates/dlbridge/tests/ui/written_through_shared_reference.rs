//! A shared reference gives no mutable slice.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![1, 2, 3]);
    let shared = &tensor;
    shared.as_slice_mut::<i32>().unwrap()[0] = 1;
}
