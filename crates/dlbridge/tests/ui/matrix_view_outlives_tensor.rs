//! A matrix view is borrowed from its tensor, whichever crate it is of.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
    let nalgebra = tensor.view_as::<nalgebra::DVectorView<f64>>().unwrap();
    let faer = tensor.view_as::<faer::ColRef<f64>>().unwrap();
    drop(tensor);
    println!("{nalgebra} {faer:?}");
}
