//! What a producer's `__dlpack__` is asked, and what becomes of its answer.
//! Quicker ways in belong to `import`, capsules to `capsule`, other protocols to `fallback`.
//! Invariant: a producer's `__dlpack__` runs once, unless it answers that it knows no keyword, or
//! the first answer is not what was asked for.

use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3::{Borrowed, ffi, intern};

use crate::import::{Copy, ImportOptions};
use crate::protocol::Protocol;
use crate::stream::{Ready, Stream};
use crate::{Error, Result, capsule, fallback};

/// Asks `__dlpack__` for whatever it gives, or another protocol where there is no such method.
#[inline(never)]
pub(crate) fn for_tensor(
    object: Borrowed<'_, '_, PyAny>,
    protocol: &mut Protocol,
) -> Result<Tensor> {
    match call_dlpack(object) {
        Ok(answer) => {
            let tensor = capsule::take(answer.as_borrowed())?;
            let is_versioned = tensor.producer().is_some_and(|raw| raw.version.is_some());
            *protocol = if is_versioned { Protocol::Versioned } else { Protocol::Legacy };
            Ok(tensor)
        }
        Err(error) => {
            let (tensor, way) = import_otherwise(object, error)?;
            *protocol = way;
            Ok(tensor)
        }
    }
}

/// What remains when `__dlpack__(max_version=...)` failed.
#[cold]
fn import_otherwise(object: Borrowed<'_, '_, PyAny>, error: PyErr) -> Result<(Tensor, Protocol)> {
    let py = object.py();
    let error = if knows_no_keyword(py, &error) {
        match object.call_method0(intern!(py, "__dlpack__")) {
            Ok(answer) => {
                return Ok((capsule::take(answer.as_borrowed())?, Protocol::LegacyNoKeyword));
            }
            Err(error) => error,
        }
    } else {
        error
    };
    if object.is_exact_instance_of::<PyCapsule>() {
        return Ok((capsule::take(object)?, Protocol::Capsule));
    }
    let lacks_method = error.is_instance_of::<PyAttributeError>(py)
        && !object.hasattr(intern!(py, "__dlpack__"))?;
    if lacks_method {
        return fallback::import(object)?.ok_or_else(|| no_protocol(object));
    }
    // What DLPack could not say, such as "read-only" before 1.0, a buffer may be able to.
    if error.is_instance_of::<PyBufferError>(py) {
        if let Ok(Some(outcome)) = fallback::import_buffer(object) {
            return Ok(outcome);
        }
    }
    Err(error.into())
}

fn no_protocol(object: Borrowed<'_, '_, PyAny>) -> Error {
    let found = match object.get_type().qualname() {
        Ok(found) => found,
        Err(error) => return error.into(),
    };
    let message = format!(
        "found {found}, wanted an object with __dlpack__ or a capsule, or an object with \
         __cuda_array_interface__, a buffer, __array_interface__ or __arrow_c_array__"
    );
    Error::Python(PyTypeError::new_err(message))
}

/// Whether a producer's exception says that it does not know the keywords of DLPack 1.0. A
/// `TypeError` from inside a producer does not: trying again would run it twice.
pub(crate) fn knows_no_keyword(py: Python<'_>, error: &PyErr) -> bool {
    if !error.is_instance_of::<PyTypeError>(py) {
        return false;
    }
    let message = error.value(py).to_string();
    // The words of CPython, Cython and PyO3, those for methods that take no keyword at all, and
    // those of pybind11 and nanobind.
    let words = ["max_version", "__dlpack__() takes no keyword", "incompatible function arguments"];
    words.iter().any(|words| message.contains(words))
}

/// `object.__dlpack__(max_version=(1, 3))`.
#[cfg(not(windows))]
#[inline]
fn call_dlpack<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // Part of the limited API since 3.12 only, but exported by every CPython since 3.9.
    unsafe extern "C" {
        fn PyObject_VectorcallMethod(
            name: *mut ffi::PyObject,
            arguments: *const *mut ffi::PyObject,
            count: usize,
            keywords: *mut ffi::PyObject,
        ) -> *mut ffi::PyObject;
    }
    let py = object.py();
    let method = intern!(py, "__dlpack__");
    let arguments = [object.as_ptr(), max_version(py)?.as_ptr()];
    let keywords = keyword_names(py)?.as_ptr();
    // SAFETY: one positional argument (the object itself) and one value for the one keyword, all
    // alive during the call (F1, F2).
    let answer =
        unsafe { PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, keywords) };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, answer) }
}

/// `object.__dlpack__(max_version=(1, 3))`.
#[cfg(windows)]
fn call_dlpack<'py>(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), max_version(py)?)?;
    object.call_method(intern!(py, "__dlpack__"), (), Some(&keywords))
}

pub(crate) fn max_version(py: Python<'_>) -> PyResult<&Py<PyTuple>> {
    static VERSION: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    VERSION.get_or_try_init(py, || {
        let version = (dlbridge::sys::DLPACK_MAJOR_VERSION, dlbridge::sys::DLPACK_MINOR_VERSION);
        Ok(version.into_pyobject(py)?.unbind())
    })
}

#[cfg(not(windows))]
fn keyword_names(py: Python<'_>) -> PyResult<&Py<PyTuple>> {
    static NAMES: PyOnceLock<Py<PyTuple>> = PyOnceLock::new();
    NAMES.get_or_try_init(py, || Ok((intern!(py, "max_version"),).into_pyobject(py)?.unbind()))
}

/// Makes what the producer gave into what was asked for. Memory that the host can read is copied
/// here, since producers differ in what they make of `copy=True`; only another device's copy is
/// asked for. `stream` is the one after whose work the tensor is ready.
#[cold]
pub(crate) fn fulfil(
    object: Borrowed<'_, '_, PyAny>,
    tensor: Tensor,
    stream: Option<Stream>,
    options: ImportOptions,
) -> Result<Tensor> {
    let found = tensor.device();
    let device = options.device.unwrap_or(found);
    let to_host = device == Device::CPU && found.is_host_accessible();
    let (tensor, is_fresh) = match options.copy {
        // What is pinned is not what lies at the same address in ordinary memory.
        Copy::IfNeeded | Copy::Always if found != device && to_host => {
            return host_copy(object.py(), &tensor, stream);
        }
        _ if found != device => (ask_for(object, device, options)?, true),
        _ => (tensor, false),
    };
    match options.copy {
        Copy::Never if tensor.is_copied() => {
            Err(Error::buffer("copy: the producer made a copy, wanted its own memory"))
        }
        Copy::Always if is_fresh || tensor.is_copied() => Ok(tensor),
        Copy::Always if device.is_host_accessible() => host_copy(object.py(), &tensor, stream),
        Copy::Always => ask_for(object, device, options),
        Copy::Never | Copy::IfNeeded => Ok(tensor),
    }
}

/// A copy in ordinary memory, made once the work of a stream is done.
fn host_copy(py: Python<'_>, tensor: &Tensor, stream: Option<Stream>) -> Result<Tensor> {
    let device = tensor.device();
    if let Some(ready) = stream.map_or(Ok(None), |stream| Ready::on(stream, device))? {
        py.detach(|| ready.before_host(device))?;
    }
    Ok(tensor.to_compact()?)
}

/// Asks the producer for another device or for a copy there.
fn ask_for(
    object: Borrowed<'_, '_, PyAny>,
    device: Device,
    options: ImportOptions,
) -> Result<Tensor> {
    let py = object.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), max_version(py)?)?;
    keywords.set_item(intern!(py, "dl_device"), (device.kind.0, device.id))?;
    // A stream is one of the device that is asked for (array API 2024.12, `dl_device`).
    if let Some(number) = options.stream.map_or(Ok(None), |stream| stream.number_on(device))? {
        keywords.set_item(intern!(py, "stream"), number)?;
    }
    match options.copy {
        Copy::IfNeeded => {}
        Copy::Never => keywords.set_item(intern!(py, "copy"), false)?,
        Copy::Always => keywords.set_item(intern!(py, "copy"), true)?,
    }
    let answer = object.call_method(intern!(py, "__dlpack__"), (), Some(&keywords));
    let answer = answer.map_err(|cause| cannot_give(py, device, cause))?;
    let tensor = capsule::take(answer.as_borrowed())?;
    if tensor.device() == device {
        Ok(tensor)
    } else {
        let found = tensor.device();
        Err(Error::buffer(format!("device: the producer gave {found}, wanted {device}")))
    }
}

/// A `BufferError` with the producer's own exception as its cause. An interrupt stays one.
fn cannot_give(py: Python<'_>, device: Device, cause: PyErr) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause;
    }
    let what = if device.kind == DeviceKind::CPU { "host memory" } else { "this device" };
    let message = format!("device: the producer cannot give {device}: it refused {what}");
    let error: PyErr = Error::buffer(message).into();
    error.set_cause(py, Some(cause));
    error
}
