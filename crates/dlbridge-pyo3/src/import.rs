//! From a Python object to a tensor over its memory.
//! Capsules belong to `capsule`, argument conversion to `tensor`.
//! Invariant: a producer's `__dlpack__` runs once, unless it answers that it knows no keyword, or
//! the first answer is not what was asked for.

use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::exceptions::{PyAttributeError, PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyTuple};
use pyo3::{Borrowed, ffi, intern};

use crate::exchange::Way;
use crate::protocol::Protocol;
use crate::{Error, Result, capsule, exchange, numpy};

/// Whether an import may copy, or has to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copy {
    /// As the producer likes; every known one shares its memory.
    #[default]
    IfNeeded,
    /// Never: a producer that copied is refused.
    Never,
    /// Always: the tensor is ours alone.
    Always,
}

/// What an importer may ask for. The default shares the producer's memory, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// The device that the tensor is to be on; the producer's own if `None`.
    pub device: Option<Device>,
    /// Whether to copy.
    pub copy: Copy,
}

/// Takes a Python object's memory as a tensor.
///
/// The object is of a type that publishes the C exchange API (`__dlpack_c_exchange_api__`), has
/// `__dlpack__`, or is a DLPack capsule.
///
/// # Errors
///
/// The producer's own exception; a `TypeError` for an object that is none of these; a
/// `BufferError` that names the field if the descriptor is refused, or for a device or a copy
/// that cannot be had.
#[inline]
pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Tensor> {
    import_noting(object, options, &mut Protocol::Capsule)
}

/// As [`import`], and tells which way the tensor came.
///
/// # Errors
///
/// As [`import`].
pub fn import_with_protocol(
    object: Borrowed<'_, '_, PyAny>,
    options: ImportOptions,
) -> Result<(Tensor, Protocol)> {
    let mut protocol = Protocol::Capsule;
    let tensor = import_noting(object, options, &mut protocol)?;
    Ok((tensor, protocol))
}

/// Lends an object's memory to `function`, by the quickest way there is: for the types of the C
/// exchange API and for NumPy's arrays there is no allocation, and nothing to release. Other
/// objects are imported for as long.
///
/// The tensor is flagged [`READ_ONLY`](dlbridge::Flags::READ_ONLY) if it came through the exchange
/// API, which cannot say of borrowed memory whether it may be written.
///
/// ```
/// use dlbridge_pyo3::with_borrowed;
/// use pyo3::prelude::*;
///
/// fn first(x: &Bound<'_, PyAny>) -> dlbridge_pyo3::Result<f64> {
///     // SAFETY: nothing in the closure runs Python code, which might resize `x`.
///     let first = unsafe { with_borrowed(x.as_borrowed(), |x| x.view::<f64>()?.item()) }?;
///     Ok(first?)
/// }
/// # Python::initialize();
/// # Python::attach(|py| {
/// let x = dlbridge_pyo3::PyTensor::from(dlbridge::Tensor::scalar(2.5)).into_pyobject(py).unwrap();
/// assert_eq!(first(&x).unwrap(), 2.5);
/// # });
/// ```
///
/// # Safety
///
/// Until `function` returns, nobody moves, resizes or frees the object's memory: neither
/// `function` by running Python code, nor another thread.
///
/// # Errors
///
/// As [`import`].
#[inline]
pub unsafe fn with_borrowed<R>(
    object: Borrowed<'_, '_, PyAny>,
    function: impl FnOnce(&Tensor) -> R,
) -> Result<R> {
    let lent = match exchange::way_of(object) {
        // SAFETY: the caller's duty.
        Some(Way::Table(table)) => unsafe { exchange::lend(object, table, function) },
        // SAFETY: of that very type, and the caller's duty.
        Some(Way::NumPy) => unsafe { numpy::lend(object, function) },
        None => Err(function),
    };
    lent.unwrap_or_else(|function| {
        let tensor = import_shared(object, &mut Protocol::Capsule)?;
        Ok(function(&tensor))
    })
}

#[inline(always)]
fn import_noting(
    object: Borrowed<'_, '_, PyAny>,
    options: ImportOptions,
    protocol: &mut Protocol,
) -> Result<Tensor> {
    let tensor = import_shared(object, protocol)?;
    if options == ImportOptions::default() {
        return Ok(tensor);
    }
    fulfil(object, tensor, options)
}

/// Imports whatever the producer gives without being asked for a device or a copy.
#[inline(always)]
fn import_shared(object: Borrowed<'_, '_, PyAny>, protocol: &mut Protocol) -> Result<Tensor> {
    let tensor = match exchange::way_of(object) {
        Some(Way::Table(table)) => {
            *protocol = Protocol::ExchangeApi;
            exchange::import(object, table)
        }
        Some(Way::NumPy) => {
            *protocol = Protocol::NumPy;
            // SAFETY: of that very type.
            unsafe { numpy::import(object) }
        }
        None => None,
    };
    match tensor {
        Some(tensor) => tensor,
        None => call_for_tensor(object, protocol),
    }
}

/// Asks `__dlpack__`.
#[inline(never)]
fn call_for_tensor(object: Borrowed<'_, '_, PyAny>, protocol: &mut Protocol) -> Result<Tensor> {
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
    if knows_no_keyword(py, &error) {
        let answer = object.call_method0(intern!(py, "__dlpack__"))?;
        return Ok((capsule::take(answer.as_borrowed())?, Protocol::LegacyNoKeyword));
    }
    if object.is_exact_instance_of::<PyCapsule>() {
        return Ok((capsule::take(object)?, Protocol::Capsule));
    }
    let lacks_method = error.is_instance_of::<PyAttributeError>(py)
        && !object.hasattr(intern!(py, "__dlpack__"))?;
    if lacks_method {
        let found = object.get_type().qualname()?;
        let message = format!("found {found}, wanted an object with __dlpack__ or a capsule");
        return Err(Error::Python(PyTypeError::new_err(message)));
    }
    Err(error.into())
}

/// Whether a producer's exception says that it does not know the keywords of DLPack 1.0. A
/// `TypeError` from inside a producer does not: trying again would run it twice.
fn knows_no_keyword(py: Python<'_>, error: &PyErr) -> bool {
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
    // alive during the call.
    let answer =
        unsafe { PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, keywords) };
    // SAFETY: a new reference, or null with an exception set.
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

fn max_version(py: Python<'_>) -> PyResult<&Py<PyTuple>> {
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

/// Makes what the producer gave into what was asked for. Host memory is copied here, since
/// producers differ in what they make of `copy=True`; only another device's copy is asked for.
#[cold]
fn fulfil(
    object: Borrowed<'_, '_, PyAny>,
    tensor: Tensor,
    options: ImportOptions,
) -> Result<Tensor> {
    let device = options.device.unwrap_or(tensor.device());
    let is_elsewhere = tensor.device() != device;
    let tensor = if is_elsewhere { ask_for(object, device, options.copy)? } else { tensor };
    match options.copy {
        Copy::Never if tensor.is_copied() => {
            Err(Error::buffer("copy: the producer made a copy, wanted its own memory"))
        }
        Copy::Always if is_elsewhere || tensor.is_copied() => Ok(tensor),
        Copy::Always if device.is_host_accessible() => Ok(tensor.to_compact()?),
        Copy::Always => ask_for(object, device, options.copy),
        Copy::Never | Copy::IfNeeded => Ok(tensor),
    }
}

/// Asks the producer for another device or for a copy there.
fn ask_for(object: Borrowed<'_, '_, PyAny>, device: Device, copy: Copy) -> Result<Tensor> {
    let py = object.py();
    let keywords = PyDict::new(py);
    keywords.set_item(intern!(py, "max_version"), max_version(py)?)?;
    keywords.set_item(intern!(py, "dl_device"), (device.kind.0, device.id))?;
    match copy {
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
