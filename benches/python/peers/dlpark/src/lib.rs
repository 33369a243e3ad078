//! The paths of the benchmark through dlpark, as its guides show them.

use std::sync::Arc;

use dlpark::DlpackFlags;
use dlpark::allocation::dynamic::Initialized;
use dlpark::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Fixed;
use dlpark::python::consumer::exchange::ExchangeApi;
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack, from_dlpack};
use dlpark::{DlpackElement, Managed, ManagedTensorBase, TensorRef, versioned};
use ndarray::Array2;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

fn elements() -> Vec<f32> {
    vec![1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
}

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyBufferError::new_err(error.to_string())
}

fn first(tensor: &TensorRef<'_>) -> PyResult<f32> {
    if tensor.ndim() != 2 || tensor.shape().contains(&0) {
        return Err(PyTypeError::new_err("expected two axes with elements"));
    }
    // SAFETY: the tensor was validated, and no code writes to it.
    unsafe { tensor.cpu_slice::<f32>() }.map(|elements| elements[0]).map_err(refused)
}

#[pyfunction]
fn nothing() {}

#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

#[pyfunction]
fn read(array: &Bound<'_, PyAny>) -> PyResult<f32> {
    let tensor = from_dlpack(array.as_borrowed(), None, None)?;
    first(&tensor.validate().map_err(refused)?)
}

#[pyfunction]
fn read_borrowed(array: &Bound<'_, PyAny>) -> PyResult<f32> {
    let api = ExchangeApi::from_object(array.as_borrowed())?
        .ok_or_else(|| PyTypeError::new_err("no exchange API"))?;
    api.with_tensor_view_no_sync(array.as_borrowed(), |tensor, _| {
        // SAFETY: the producer vouches for the descriptor during this call.
        first(&unsafe { TensorRef::from_raw(tensor) }.map_err(refused)?)
    })?
}

/// A capsule: what a managed tensor becomes by itself.
#[pyfunction]
fn make() -> PyResult<versioned::Dlpack> {
    let array = Array2::from_shape_vec((2, 3), elements()).map_err(refused)?;
    let initialized: Initialized<DLManagedTensorVersioned> =
        Box::new(array).try_into().map_err(refused)?;
    // SAFETY: data, type and device are those of the array that moved in.
    Ok(unsafe { initialized.finish() })
}

#[pyclass(frozen)]
struct Exporter {
    elements: Arc<Vec<f32>>,
}

impl Exporter {
    fn tensor<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let elements = Arc::clone(&self.elements);
        let data = elements.as_ptr();
        let prepared = Fixed::new([2_i64, 3], [3_i64, 1]).prepare_as::<M>().map_err(refused)?;
        let mut initialized = prepared.initialize(elements);
        initialized.set_data(data.cast_mut().cast());
        initialized.set_dtype(f32::DTYPE);
        initialized.set_device(DLDevice::CPU);
        // SAFETY: shape and strides fit the six elements, which the tensor keeps alive.
        Ok(unsafe { initialized.finish() })
    }
}

impl DlpackExporter for Exporter {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        DlpackFlags::empty()
    }

    fn prepare_export(&self, _py: Python<'_>, _request: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        self.tensor()
    }

    fn export_versioned(&self, _py: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        self.tensor()
    }
}

#[pymethods]
impl Exporter {
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        export_dlpack(self, py, ExportRequest::parse(stream, max_version, dl_device, copy)?)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }
}

#[pyfunction]
fn make_exporter() -> Exporter {
    Exporter { elements: Arc::new(elements()) }
}

#[pymodule]
fn bench_dlpark(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(read_borrowed, module)?)?;
    module.add_function(wrap_pyfunction!(make, module)?)?;
    module.add_function(wrap_pyfunction!(make_exporter, module)?)
}
