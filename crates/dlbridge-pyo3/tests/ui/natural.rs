//! 7 programs, 5 with a cure in the message: what does not compile of the programs in `natural/main.rs`.
#![allow(dead_code)]

use dlbridge::{SharedTensor, Tensor}; //~ E0432
use dlbridge_pyo3::{PyTensor, PyTensorMut, PyTensorOf, Result};
use ndarray::Array2;
use pyo3::prelude::*;

fn grid(values: Vec<f32>, n: usize, m: usize) -> Result<PyTensor> {
    Ok(Tensor::from(values).reshape([n, m])?.into()) //~ E0599 cure: use dlbridge::Parts;
}

fn mask(flags: Vec<bool>, n: usize, m: usize) -> Result<PyTensor> {
    Ok(Tensor::builder(flags).shape([n, m]).build::<bool>()?.into()) //~ E0277 cure: Tensor::from(mask).reshape([2, 3])
}

fn rows_and_columns(x: PyTensorOf<f64, 2>) -> (i64, i64) {
    let [n, m] = x.shape(); //~ E0005 cure: else
    (*n, *m)
}

fn double(mut x: PyTensorMut<f64>) {
    for value in x.view_mut().iter_mut() { //~ E0277 cure: view.map_inplace(...)
        *value *= 2.0;
    }
}

fn determinant(x: PyTensorOf<f64, 2>) -> Result<f64> {
    let a: Array2<f64> = (&x).try_into()?; //~ E0277 E0277
    Ok(a[[0, 0]] * a[[1, 1]] - a[[0, 1]] * a[[1, 0]])
}

fn halved<'py>(x: PyTensorOf<f64>) -> Result<Bound<'py, PyAny>> {
    x.to_caller(x.view().map_to_tensor(|value| value / 2.0)?) //~ E0277 cure: CallerArray<'py, T, N>
}

#[pyclass]
struct Table {
    values: SharedTensor,
}

fn main() {}
