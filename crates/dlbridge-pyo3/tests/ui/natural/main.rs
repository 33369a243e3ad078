//! 30 programs that an author who knows rust-numpy, ndarray, NumPy and PyTorch writes by analogy, chosen before any of them was
//! compiled. 23 compile, and run here; the other 7 are in `../natural.rs`, with what the compiler says.

use std::collections::HashMap;

use dlbridge::{DType, Tensor};
use dlbridge_pyo3::{PyTensor, PyTensorMut, PyTensorOf, Result, match_dtype};
use ndarray::Array2;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

#[pyfunction]
fn zeros(n: i64, m: i64) -> Result<PyTensor> {
    Ok(Tensor::zeros(DType::F32, [n, m])?.into())
}

#[pyfunction]
fn full(n: usize, m: usize, value: f64) -> Result<PyTensor> {
    Ok(Tensor::full([n, m], value)?.into())
}

#[pyfunction]
fn arange(n: i64) -> PyTensor {
    PyTensor::from((0..n).collect::<Vec<_>>())
}

#[pyfunction]
fn eye(n: usize) -> PyTensor {
    Array2::<f64>::eye(n).into()
}

#[pyfunction]
fn trace(x: PyTensorOf<f64, 2>) -> f64 {
    let mut total = 0.0;
    for i in 0..x.shape()[0] {
        total += x.view().get([i, i]).unwrap();
    }
    total
}

#[pyfunction]
fn sorted_values(x: PyTensorOf<f64, 1>) -> PyTensor {
    let mut values = x.to_vec();
    values.sort_by(f64::total_cmp);
    PyTensor::new(values)
}

#[pyfunction]
fn total(x: PyTensorOf<f64>) -> f64 {
    let mut total = 0.0;
    for value in x.view() {
        total += value;
    }
    total
}

#[pyfunction]
fn at(x: PyTensorOf<f64, 2>, i: usize, j: usize) -> Option<f64> {
    x.view().get([i, j])
}

#[pyfunction]
fn row_sums(x: PyTensorOf<f64, 2>) -> PyTensor {
    let sums: Vec<f64> = x.view().rows().map(|row| row.iter().sum()).collect();
    PyTensor::new(sums)
}

#[pyfunction]
fn row_sum(x: PyTensorOf<f64, 2>, i: usize) -> Result<f64> {
    Ok(x.view().row(i)?.iter().sum())
}

#[pyfunction]
fn mean(x: PyTensor) -> PyResult<f64> {
    let x = x.view::<f64>()?;
    Ok(x.iter().sum::<f64>() / x.len() as f64)
}

#[pyfunction]
fn argmax(x: PyTensorOf<f64, 1>) -> Option<usize> {
    x.view().iter().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(place, _)| place)
}

#[pyfunction]
fn clear(mut x: PyTensorMut<f64>) {
    x.view_mut().fill(0.0);
}

#[pyfunction]
fn put(mut x: PyTensorMut<f64, 2>, i: usize, j: usize, value: f64) -> Result<()> {
    Ok(x.view_mut().set([i, j], value)?)
}

#[pyfunction]
fn number_rows(mut x: PyTensorMut<f64, 2>) -> Result<()> {
    for (number, mut row) in x.view_mut().rows_mut()?.enumerate() {
        row.fill(number as f64);
    }
    Ok(())
}

#[pyfunction]
fn normalise(mut x: PyTensorMut<f64, 1>) {
    let mut view = x.view_mut();
    let norm = view.iter().map(|value| value * value).sum::<f64>().sqrt();
    view.map_inplace(|value| value / norm);
}

#[pyfunction]
fn same(x: PyTensorOf<f64>) -> PyTensor {
    x.into()
}

#[pyfunction]
fn length(x: PyTensor) -> Result<usize> {
    let x: PyTensorOf<f32, 2> = x.try_into()?;
    Ok(x.len())
}

#[pyfunction]
fn first(x: PyTensorOf<f64, 1>) -> Result<f64> {
    if x.is_empty() {
        return Err(PyValueError::new_err("expected elements, found none").into());
    }
    x.view().get([0]).ok_or_else(|| PyValueError::new_err("none").into())
}

#[pyfunction]
fn doubled(py: Python<'_>, x: PyTensorOf<f64>) -> Result<PyTensor> {
    let doubled = py.detach(|| x.view().map_to_tensor(|value| 2.0 * value))?;
    Ok(doubled.into())
}

#[pyfunction]
fn sum_of_any(x: PyTensor) -> Result<f64> {
    match_dtype!(x.dtype(), T: f32 | f64 | i32 => x.view::<T>()?.iter().map(f64::from).sum())
}

#[pyfunction]
#[pyo3(signature = (arrays, *, scale = 1.0, names = None))]
fn sums(
    arrays: Vec<PyTensorOf<f64>>,
    scale: f64,
    names: Option<HashMap<String, PyTensor>>,
) -> (PyTensor, usize) {
    let sums: Vec<_> = arrays.iter().map(|x| scale * x.view().iter().sum::<f64>()).collect();
    (sums.into(), names.map_or(0, |it| it.len()))
}

dlbridge_operators::operator! {
    /// The row-wise sum.
    fn row_total(x: View<f32>, out: ViewMut<f32>) -> Result<()> as "(n,m)->(n)" {
        for (row, place) in x.rows().zip(0..) {
            out.set([place], row.iter().sum())?;
        }
        Ok(())
    }
}

#[pymodule]
mod natural {
    #[pymodule_export]
    use super::{
        arange, argmax, at, clear, doubled, eye, first, full, length, mean, normalise, number_rows,
        put, row_sum, row_sums, same, sorted_values, sum_of_any, sums, total, trace, zeros,
    };
}

const PROGRAMS: &str = include_str!("main.rs");
const OTHERS: &str = include_str!("../natural.rs");

/// The sentence of Python that a program's comment would have, run with NumPy as `np` and the functions by their names.
const CALLS: &str = r#"
x = np.arange(1.0, 7.0).reshape(2, 3)
back = lambda tensor: np.from_dlpack(tensor).tolist()
assert back(zeros(1, 2)) == [[0, 0]] and back(full(1, 2, 1.5)) == [[1.5, 1.5]]
assert back(arange(3)) == [0, 1, 2] and back(eye(2)) == [[1, 0], [0, 1]]
assert trace(x[:, :2]) == 6 and at(x, 1, 2) == 6 and at(x, 2, 0) is None
assert back(sorted_values(x[0, ::-1])) == [1, 2, 3] and total(x) == 21
assert back(row_sums(x)) == [6, 15] and row_sum(x, 1) == 15 and mean(x) == 3.5
assert argmax(x[1]) == 2 and first(x[1]) == 4
clear(x[0]); put(x, 0, 1, 3.0)
assert x.tolist() == [[0, 3, 0], [4, 5, 6]]
number_rows(x)
assert x.tolist() == [[0, 0, 0], [1, 1, 1]]
y = np.array([3.0, 4.0]); normalise(y)
assert y.tolist() == [0.6, 0.8]
assert back(same(x)) == x.tolist() and back(doubled(x)) == (2 * x).tolist()
assert length(x.astype("float32")) == 6 and sum_of_any(x.astype("int32")) == 3
tensor, names = sums([x, y], scale=2.0, names={"x": x})
assert back(tensor)[0] == 6 and names == 1
"#;

#[test]
fn programs_by_analogy_compile_and_run() -> PyResult<()> {
    let programs = PROGRAMS.matches("\n#[pyfunction]").count()
        + PROGRAMS.matches("\n    fn row_total").count();
    let others = OTHERS.matches("//~ ").count();
    let counts = format!("{programs} compile, and run here; the other {others} are in");
    assert!(programs + others == 30 && PROGRAMS.contains(&counts), "expected {counts:?}");
    Python::initialize();
    Python::attach(|py| {
        let names = pyo3::types::PyDict::new(py);
        names.set_item("np", py.import("numpy")?)?;
        let module = pyo3::wrap_pymodule!(natural)(py);
        names.call_method1("update", (module.getattr(py, "__dict__")?,))?;
        let calls = std::ffi::CString::new(CALLS).expect("no zero");
        py.run(&calls, Some(&names), None)
    })
}
