//! The native module of the Python package `dlbridge`. It names and documents functions;
//! `dlbridge-pyo3` implements the protocols.
//! Invariant: the functions match the type stubs in `dlbridge/_native.pyi`.

mod create;
mod dispatch;
mod fill;
mod inspect;
mod lend;
mod release;

use dlbridge_pyo3::{
    CopyMode, ImportOptions, PyDevice, Result, Stream, TensorObject, defer_reference_counts,
};

use pyo3::prelude::*;

/// Import any array over the same memory: by DLPack, or by another protocol that it supports.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, copy=None, stream=None))]
fn from_dlpack(
    x: &Bound<'_, PyAny>,
    device: Option<PyDevice>,
    copy: Option<bool>,
    stream: Option<Stream>,
) -> Result<TensorObject> {
    let device = device.map(|device| device.0);
    let copy = match copy {
        None => CopyMode::IfNeeded,
        Some(false) => CopyMode::Never,
        Some(true) => CopyMode::Always,
    };
    TensorObject::import(x.as_borrowed(), ImportOptions { device, copy, stream })
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DLPACK_VERSION", dlpack_version())?;
    module.add_class::<TensorObject>()?;
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(create::zeros, module)?)?;
    module.add_function(wrap_pyfunction!(create::arange, module)?)?;
    module.add_function(wrap_pyfunction!(create::from_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(fill::fill, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::inspect, module)?)?;
    module.add_function(wrap_pyfunction!(lend::_lend, module)?)?;
    module.add_function(wrap_pyfunction!(release::_keep, module)?)?;
    module.add_function(wrap_pyfunction!(release::_drop_on_threads, module)?)?;
    defer_reference_counts(module)
}

fn dlpack_version() -> (u32, u32) {
    (dlbridge::sys::DLPACK_MAJOR_VERSION, dlbridge::sys::DLPACK_MINOR_VERSION)
}
