//! The paths of the benchmark through dlpk, as the docs of its module `pyo3` show them.

use dlpk::DLPackTensor;
use dlpk::pyo3::PyDLPack;
use ndarray::{Array2, ArrayView2};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

fn refused(error: impl std::fmt::Display) -> PyErr {
    PyBufferError::new_err(error.to_string())
}

#[pyfunction]
fn nothing() {}

#[pyfunction]
fn ignore(_array: &Bound<'_, PyAny>) -> f32 {
    1.5
}

/// The crate takes capsules of version 1 only, so one has to be asked for.
#[pyfunction]
fn read(py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<f32> {
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), (1, 3))?;
    let capsule = array.call_method(intern!(py, "__dlpack__"), (), Some(&keywords))?;
    let tensor = DLPackTensor::try_from(capsule.cast::<PyCapsule>()?)?;
    let view = ArrayView2::<f32>::try_from(tensor.as_ref()).map_err(refused)?;
    view.first().copied().ok_or_else(|| PyTypeError::new_err("expected elements"))
}

#[pyfunction]
fn make() -> PyResult<PyDLPack> {
    let elements = vec![1.5_f32, 2.5, 3.5, 4.5, 5.5, 6.5];
    let array = Array2::from_shape_vec((2, 3), elements).map_err(refused)?;
    PyDLPack::try_from(DLPackTensor::try_from(array).map_err(refused)?)
}

#[pymodule]
fn bench_dlpk(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(nothing, module)?)?;
    module.add_function(wrap_pyfunction!(ignore, module)?)?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(make, module)?)
}
