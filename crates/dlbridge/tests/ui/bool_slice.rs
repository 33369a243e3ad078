//! Foreign bytes need not be 0 or 1, so no `&bool` is formed over them.

fn main() {
    let mut tensor = dlbridge::Tensor::from(vec![true, false]);
    let _ = tensor.as_slice::<bool>();
    let _ = tensor.as_slice_mut::<bool>();
    let _ = tensor.view_as::<ndarray::ArrayView1<bool>>();
}
