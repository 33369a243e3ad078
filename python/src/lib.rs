//! The native module of the Python package `dlbridge`. It names and documents functions;
//! `dlbridge-pyo3` implements the protocols.
//! Invariant: the functions match the type stubs in `dlbridge/_native.pyi`.

mod arguments;
mod channel;
mod create;
mod inspect;
mod message;
mod safetensors;
mod sealed;
#[cfg(feature = "testing")]
mod testing;
mod timer;

use dlbridge_pyo3::{
    CopyMode, ImportOptions, PyDType, PyDevice, Result, Stream, TensorObject,
    defer_reference_counts, freeze,
};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::arguments::Copy;

/// Import any array over the same memory: by DLPack, or by another protocol that it supports.
///
/// >>> import dlbridge, numpy
/// >>> x = numpy.arange(3)
/// >>> tensor = dlbridge.from_dlpack(x)
/// >>> tensor.data_ptr == x.ctypes.data
/// True
/// >>> dlbridge.from_dlpack(x, copy=True).data_ptr == x.ctypes.data
/// False
///
/// `x` is an array of NumPy, PyTorch, JAX or another framework, a buffer such as `bytes`, a column of a data frame,
/// or a DLPack capsule. `device` is where the memory is wanted: "cpu", "cuda:0", a device of a framework. `copy=True`
/// makes a copy, `copy=False` refuses one. `stream` is the CUDA stream that waits until device memory is ready.
///
/// Raises `TypeError` for an object that is no array, `BufferError` for one whose memory cannot be imported as it is
/// asked for (by its dtype, layout, device or mask), and the exceptions of the array itself.
#[pyfunction]
#[pyo3(
    signature = (x, /, *, device=None, copy=Copy(CopyMode::IfNeeded), stream=None),
    text_signature = "(x, /, *, device=None, copy=None, stream=None)"
)]
fn from_dlpack<'py>(
    x: &Bound<'py, PyAny>,
    device: Option<PyDevice>,
    copy: Copy,
    stream: Option<Stream>,
) -> Result<Bound<'py, TensorObject>> {
    let (device, Copy(copy)) = (device.map(|device| device.0), copy);
    let tensor = TensorObject::import(x.as_borrowed(), ImportOptions { device, copy, stream })?;
    Ok(tensor.into_bound(x.py())?)
}

/// Rebuild a pickled tensor over the bytes of `data`.
#[pyfunction]
fn _unpickle(
    data: &Bound<'_, PyAny>,
    dtype: PyDType,
    shape: Vec<i64>,
    flags: u64,
) -> Result<TensorObject> {
    TensorObject::unpickle(data.as_borrowed(), dtype.0, &shape, flags)
}

#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("DLPACK_VERSION", dlpack_version())?;
    module.add_class::<TensorObject>()?;
    module.add_class::<channel::ChannelObject>()?;
    module.add_class::<message::LoanObject>()?;
    module.add_class::<message::MessageObject>()?;
    module.add_function(wrap_pyfunction!(channel::channel, module)?)?;
    module.add_class::<sealed::SealedObject>()?;
    module.add_class::<sealed::UnsealedObject>()?;
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(create::zeros, module)?)?;
    module.add_function(wrap_pyfunction!(create::from_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(sealed::seal, module)?)?;
    module.add_function(wrap_pyfunction!(sealed::empty_sealed, module)?)?;
    module.add_function(wrap_pyfunction!(sealed::open_sealed, module)?)?;
    module.add_function(wrap_pyfunction!(sealed::open_handle, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::open_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::save_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::seal_safetensors, module)?)?;
    module.add_function(wrap_pyfunction!(_unpickle, module)?)?;
    module.add_function(wrap_pyfunction!(inspect::inspect, module)?)?;
    #[cfg(feature = "testing")]
    testing::add_to(module)?;
    for value in module.dict().values() {
        if let Ok(class) = value.cast::<PyType>() {
            freeze(class)?;
        }
    }
    defer_reference_counts(module)
}

fn dlpack_version() -> (u32, u32) {
    (dlbridge::sys::DLPACK_MAJOR_VERSION, dlbridge::sys::DLPACK_MINOR_VERSION)
}
