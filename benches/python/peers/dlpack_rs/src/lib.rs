//! The paths of the benchmark through dlpack-rs and its PyO3 glue.

use dlpack_rs::ffi::K_DL_CPU;
use dlpack_rs::pyo3_glue::{IntoDLPack, PyTensor};
use dlpack_rs::safe::{TensorInfo, cpu_device, dtype_f32};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

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
    let (found, wanted) = (tensor.dtype(), dtype_f32());
    let is_f32 = (found.code, found.bits, found.lanes) == (wanted.code, wanted.bits, wanted.lanes);
    let fits = tensor.device().device_type == K_DL_CPU && is_f32 && tensor.ndim() == 2;
    if !fits || tensor.shape().contains(&0) {
        return Err(PyTypeError::new_err("expected float32[m, n] on cpu"));
    }
    let data = tensor.data_ptr().cast::<u8>().wrapping_add(tensor.byte_offset() as usize);
    // SAFETY: the tensor lies in host memory and has a first element of this type.
    Ok(unsafe { data.cast::<f32>().read_unaligned() })
}

/// A capsule: the crate has no object of its own.
#[pyfunction]
fn make(py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
    Buffer::new().into_capsule_versioned(py, 0)
}

/// What a user of the crate writes so that `numpy.from_dlpack` takes it.
#[pyclass]
struct Exporter {
    buffer: Option<Buffer>,
}

#[pymethods]
impl Exporter {
    #[pyo3(signature = (**_keywords))]
    fn __dlpack__<'py>(
        &mut self,
        py: Python<'py>,
        _keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let buffer = self.buffer.take();
        let buffer = buffer.ok_or_else(|| PyBufferError::new_err("exported already"))?;
        buffer.into_capsule_versioned(py, 0)
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
fn bench_dlpack_rs(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(make, module)?)?;
    module.add_function(wrap_pyfunction!(make_exporter, module)?)
}
