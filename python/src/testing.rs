//! What tests call in place of an extension; in no user's wheel, only with the feature `testing`.
//! Invariant: the functions stay attached while they wait.

use std::cell::RefCell;
use std::thread;

use dlbridge::{Tensor, match_dtype};
use dlbridge_pyo3::{
    ExportDlpack, ImportOptions, PyDType, PyTensor, PyTensorLike, PyTensorMut, PyTensorOf, Result,
    dlpack_class, import,
};
use pyo3::prelude::*;

/// Adds the functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Calls>()?;
    module.add_function(wrap_pyfunction!(_keep, module)?)?;
    module.add_function(wrap_pyfunction!(_read, module)?)?;
    module.add_function(wrap_pyfunction!(_write, module)?)?;
    module.add_function(wrap_pyfunction!(_view, module)?)?;
    module.add_function(wrap_pyfunction!(_matrix, module)?)?;
    module.add_function(wrap_pyfunction!(_drop_on_threads, module)?)
}

thread_local! {
    static KEPT: RefCell<Vec<PyTensor>> = const { RefCell::new(Vec::new()) };
}

/// A class whose tensor is that of the object that a function returns.
#[pyclass(frozen, name = "_Calls", module = "dlbridge._native")]
struct Calls(Py<PyAny>);

#[pymethods]
impl Calls {
    #[new]
    fn new(function: Py<PyAny>) -> Self {
        Self(function)
    }

    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }
}

impl ExportDlpack for Calls {
    fn tensor(&self) -> Result<Tensor> {
        Python::attach(|py| {
            let object = self.0.bind(py).call0()?;
            Ok(import(object.as_borrowed(), ImportOptions::default())?.tensor)
        })
    }
}

/// The argument of a function that accepts one dtype.
#[pyfunction]
#[pyo3(signature = (x, dtype, /))]
fn _read(x: &Bound<'_, PyAny>, dtype: PyDType) -> Result<PyTensor> {
    Ok(match_dtype!(dtype.0, T: f64 | f32 | i64 | i32 | u8 | bool => {
        PyTensor::from(x.extract::<PyTensorOf<T>>()?.into_inner())
    })?)
}

/// The argument of a function that writes one dtype.
#[pyfunction]
#[pyo3(signature = (x, dtype, /))]
fn _write(x: &Bound<'_, PyAny>, dtype: PyDType) -> Result<()> {
    match_dtype!(dtype.0, T: f64 | f32 | i64 => {
        let mut x = x.extract::<PyTensorMut<T>>()?;
        x.view_mut().map_inplace(|value| value);
    })?;
    Ok(())
}

/// A view of elements of one of some types.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn _view(x: PyTensor) -> Result<PyTensor> {
    Ok(match_dtype!(x.dtype(), T: i32 | f32 | f64 => {
        PyTensor::new(x.view::<T>()?.map_to_tensor(|value| value)?)
    })?)
}

/// A matrix that NumPy converts.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn _matrix(x: PyTensorLike<f64, 2>) -> PyTensor {
    x.into_inner().into()
}

/// Keep a tensor until this thread ends, which is after Python has deleted the thread's state.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn _keep(x: PyTensor) {
    KEPT.with_borrow_mut(|kept| kept.push(x));
}

/// Drop each tensor on a thread of its own, and wait for all of them without detaching.
#[pyfunction]
#[pyo3(signature = (xs, /))]
fn _drop_on_threads(xs: Vec<PyTensor>) -> usize {
    let threads: Vec<_> =
        xs.into_iter().map(|x| thread::spawn(move || x.shape().iter().sum::<i64>())).collect();
    threads.into_iter().filter_map(|thread| thread.join().ok()).map(|sum| sum as usize).sum()
}
