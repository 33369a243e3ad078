//! A matrix view is borrowed from its tensor, whichever crate it is of.

fn main() {
    let tensor = dlbridge::Tensor::from(vec![1.0_f64, 2.0]);
    let nalgebra = tensor.as_matrix::<f64, nalgebra::Dyn, nalgebra::U1>().unwrap();
    let faer = tensor.as_col::<f64>().unwrap();
    drop(tensor);
    println!("{nalgebra} {faer:?}");
}
