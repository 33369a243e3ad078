//! What tests call in place of an extension; in no user's wheel, only with the feature `testing`.
//! Invariant: the functions stay attached while they wait.

use std::cell::RefCell;
use std::thread;

use dlbridge::Tensor;
use dlbridge_pyo3::{ExportDlpack, ImportOptions, PyTensor, Result, dlpack_class, import};
use pyo3::prelude::*;

/// Adds the functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Calls>()?;
    module.add_function(wrap_pyfunction!(_keep, module)?)?;
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
