//! The paths of the benchmark through pyo3-dlpack, as its README shows them.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3_dlpack::{IntoDLPack, PyTensor, TensorInfo, cpu_device, dtype_f32};

/// What owns the elements of an export.
struct Buffer {
    elements: Vec<f32>,
}

impl Buffer {
    fn new() -> Self {
        Self { elements: vec![1.5, 2.5, 3.5, 4.5, 5.5, 6.5] }
    }
}

impl IntoDLPack for Buffer {
    fn tensor_info(&self) -> TensorInfo {
        let data = self.elements.as_ptr().cast_mut().cast();
        TensorInfo::contiguous(data, cpu_device(), dtype_f32(), vec![2, 3])
    }
}

#[pyfunction]
fn nothing() {}

#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

#[pyfunction]
fn read(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<f32> {
    let tensor = PyTensor::from_pyany(py, array)?;
    let fits = tensor.device().is_cpu() && tensor.dtype().is_f32() && tensor.ndim() == 2;
    if !fits || tensor.shape().contains(&0) {
        return Err(PyTypeError::new_err("expected float32[m, n] on cpu"));
    }
    // SAFETY: the tensor lies in host memory and has a first element of this type.
    Ok(unsafe { tensor.data_ptr().cast::<f32>().read_unaligned() })
}

/// A capsule: the crate has no object of its own.
#[pyfunction]
fn make(py: Python<'_>) -> PyResult<Py<PyAny>> {
    Buffer::new().into_dlpack(py)
}

/// What a user of the crate writes so that `numpy.from_dlpack` takes it.
#[pyclass]
struct Exporter {
    buffer: Option<Buffer>,
}

#[pymethods]
impl Exporter {
    #[pyo3(signature = (**_keywords))]
    fn __dlpack__(
        &mut self,
        py: Python<'_>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let buffer = self.buffer.take();
        buffer.ok_or_else(|| PyBufferError::new_err("exported already"))?.into_dlpack(py)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }
}

#[pyfunction]
fn make_exporter() -> Exporter {
    Exporter { buffer: Some(Buffer::new()) }
}

#[pymodule]
fn bench_pyo3_dlpack(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(make, module)?)?;
    module.add_function(wrap_pyfunction!(make_exporter, module)?)
}
