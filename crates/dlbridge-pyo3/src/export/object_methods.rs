//! The methods of `dlbridge.Tensor`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::answer::{Arguments, answer};
use super::object::TensorObject;
use super::{buffer_slots, exchange};
use crate::Result;

#[pymethods]
impl TensorObject {
    /// The C exchange API of this type.
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        // Class attributes are made when the class is, before there is an object of it.
        buffer_slots::install(py)?;
        Ok(exchange::capsule::<Self>(py)?.unbind())
    }

    /// Return a capsule over the same memory.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, Option<i32>)>,
        copy: Option<bool>,
    ) -> Result<Bound<'py, PyAny>> {
        let arguments = Arguments { stream, max_version, dl_device, copy };
        let (request, stream) = (arguments.request(), arguments.stream.as_ref());
        answer(py, request, stream, self.share(), self.ready.as_deref())
    }

    /// Return the device's type and index.
    fn __dlpack_device__(&self) -> (i32, i32) {
        let device = self.tensor.device();
        (device.kind.0, device.id)
    }

    /// The extents, outermost axis first.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.shape())
    }

    /// The strides of the axes, in elements.
    #[getter]
    fn strides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.tensor.strides())
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> String {
        self.tensor.dtype().to_string()
    }

    /// The device's name: `"cpu"`, `"cuda:0"`.
    #[getter]
    fn device(&self) -> String {
        self.tensor.device().to_string()
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.tensor.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.tensor.len()
    }

    /// The size of all elements in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.tensor.nbytes()
    }

    /// The size of one element in bytes; None for elements narrower than a byte.
    #[getter]
    fn itemsize(&self) -> Option<usize> {
        self.tensor.dtype().itemsize()
    }

    /// Whether the memory must not be written. PyTorch, Paddle and TVM-FFI ignore it.
    #[getter]
    fn readonly(&self) -> bool {
        self.tensor.is_read_only()
    }

    /// Whether the memory belongs to a tensor that requires grad, so that it must not be written.
    #[getter]
    fn requires_grad(&self) -> bool {
        self.requires_grad
    }

    /// Whether the elements are contiguous in row-major order.
    #[getter]
    fn contiguous(&self) -> bool {
        self.tensor.is_contiguous()
    }

    /// The address of the first element.
    #[getter]
    fn data_ptr(&self) -> usize {
        self.tensor.data_ptr().addr()
    }

    fn __len__(&self) -> PyResult<usize> {
        match self.tensor.shape().first() {
            Some(&extent) => Ok(extent as usize),
            None => Err(PyTypeError::new_err("a tensor of rank 0 has no length")),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shape = self.shape(py)?.repr()?.to_string();
        let (dtype, device) = (self.tensor.dtype(), self.tensor.device());
        let readonly = if self.tensor.is_read_only() { ", readonly" } else { "" };
        Ok(format!("dlbridge.Tensor(shape={shape}, dtype={dtype}, device={device}{readonly})"))
    }
}
