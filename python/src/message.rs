//! `Message`: what a channel received.
#![cfg(any(unix, windows))]

use dlbridge_pyo3::{Result, TensorObject};
use dlbridge_sealed::Message;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList};

use crate::channel::{patiently, unknown};
use crate::sealed::SealedObject;

/// Tensors that another process sent. Shared memory is used again when this object and all arrays made of it are
/// deleted.
#[pyclass(frozen, weakref, name = "Message", module = "dlbridge")]
pub(crate) struct MessageObject(pub(crate) Message);

#[pymethods]
impl MessageObject {
    /// A tensor over the memory of the message, read-only. A write through PyTorch, which ignores that, goes to
    /// a copy of the page.
    fn __getitem__(&self, name: &str) -> Result<TensorObject> {
        Ok(TensorObject::new(self.0.tensor(name).map_err(unknown)?))
    }

    /// A writable copy of a tensor, in memory of its own.
    fn copy(&self, name: &str) -> Result<TensorObject> {
        Ok(TensorObject::new(self.0.to_owned(name).map_err(unknown)?))
    }

    /// The tensors in a sealed file, for values that outlive the stream.
    ///
    /// The other process gives up the memory, so nothing is copied; a small message is. It does so when it next loans,
    /// sends or receives: wait for that, `TimeoutError` after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn keep(&self, py: Python<'_>, timeout: Option<f64>) -> Result<SealedObject> {
        let kept = patiently(py, timeout, |time| self.0.keep(time))?;
        let message = "expected that the other process uses its end, found no answer in the time; \
                       call keep() again, or copy()";
        Ok(SealedObject(kept.ok_or_else(|| PyTimeoutError::new_err(message))?))
    }

    /// The tensors by their names.
    fn tensors<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for name in self.0.names() {
            dict.set_item(name, TensorObject::new(self.0.tensor(name).map_err(unknown)?))?;
        }
        Ok(dict)
    }

    /// The names of the tensors.
    fn keys(&self) -> Vec<&str> {
        self.0.names().collect()
    }

    /// The size of all tensors in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.0.nbytes()
    }

    fn __len__(&self) -> usize {
        self.0.names().len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyIterator>> {
        PyList::new(py, self.0.names())?.try_iter()
    }
}
