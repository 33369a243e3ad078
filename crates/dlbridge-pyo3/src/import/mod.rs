//! From a Python object to a tensor over its memory.
//!
//! | file | job |
//! | --- | --- |
//! | `request` | imports what was asked for: the producer's memory by the fastest path of its type, ready for a stream, on a device or copied |
//! | `exchange` | ... through the exchange table of the type |
//! | `dlpack` | ... by a call of `__dlpack__` |
//! | `fallback` | ... through another protocol |
//! | `columns`, `cuda` | ... of them Arrow's, and CUDA's array interface. `without` names the feature that is off |
//! | `advice` | errors, with the call that helps |
//!
//! Invariants: each protocol is tried once, the fastest first. A failure other than a missing protocol ends the import. A
//! protocol has one name, the same in messages, docs and the Python module.

mod advice;
#[cfg(feature = "columns")]
mod columns;
#[cfg(feature = "cuda")]
mod cuda;
mod dlpack;
mod exchange;
mod fallback;
mod request;
#[cfg(not(all(feature = "columns", feature = "cuda")))]
mod without;

use std::fmt;

use dlbridge::{Device, DeviceKind, Tensor};
use pyo3::Borrowed;
use pyo3::prelude::*;

pub use dlbridge::protocol::call::CopyMode;
pub(crate) use exchange::{current_stream, refuse_grad, refuse_grad_to_write, requires_grad};
#[cfg(not(feature = "columns"))]
use without::columns;
#[cfg(not(feature = "cuda"))]
use without::cuda;

use crate::ffi::borrow;
use crate::ffi::callbacks::exporting;
use crate::interpreter::through_pyo3;
use crate::stream::{self, Ready, Stream};
use crate::types::{Path, path_of};
use crate::{Result, TensorObject};
use request::{import_by_path, import_on_stream, import_shared, stream_after};

/// The options of an import. The default shares the producer's memory, on the producer's device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ImportOptions {
    /// The requested device; the producer's own if `None`.
    pub device: Option<Device>,
    /// Whether to copy: if needed (the default), never, or always.
    pub copy: CopyMode,
    /// The stream that waits until device memory is ready. With `None`, the memory is ready where
    /// the producer makes it so by default. Host memory has no stream.
    pub stream: Option<Stream>,
}

/// What [`import`](import()) made of a Python object.
#[derive(Debug)]
#[non_exhaustive]
pub struct Imported {
    /// A tensor over the object's memory, or over the copy that was requested.
    pub tensor: Tensor,
    /// The protocol that was used.
    pub protocol: Protocol,
    /// The stream after whose work the memory is ready; `None` for host memory, and for an import with
    /// [`Stream::NO_SYNC`], which requests no order.
    ///
    /// The C exchange API exports device memory while work may still be queued on the producer's
    /// current stream. This is that stream, so that the caller queues its work on it, or waits for it.
    pub stream: Option<Stream>,
}

/// The protocol through which a tensor was imported.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Protocol {
    /// The C exchange API that the object's type publishes: no Python call.
    ExchangeApi,
    /// NumPy's C API, for exact `numpy.ndarray` objects: no Python call.
    NumPy,
    /// `__dlpack__(max_version=...)`, answered with a versioned tensor.
    Versioned,
    /// `__dlpack__(max_version=...)`, answered with a legacy tensor all the same.
    Legacy,
    /// `__dlpack__()` of a producer without the keyword `max_version`.
    LegacyNoKeyword,
    /// A capsule as the argument.
    Capsule,
    /// `__cuda_array_interface__`: device memory, without DLPack.
    CudaArrayInterface,
    /// The buffer protocol, without DLPack, or of an array of JAX.
    Buffer,
    /// NumPy's `__array_interface__`, without DLPack.
    ArrayInterface,
    /// Arrow's `__arrow_c_array__`, without DLPack.
    Arrow,
    /// Arrow's `__arrow_c_stream__`, without DLPack.
    ArrowStream,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExchangeApi => "C exchange API",
            Self::NumPy => "NumPy C API",
            Self::Versioned => "__dlpack__, versioned",
            Self::Legacy => "__dlpack__, legacy",
            Self::LegacyNoKeyword => "__dlpack__ without keywords",
            Self::Capsule => "capsule",
            Self::CudaArrayInterface => "__cuda_array_interface__",
            Self::Buffer => "buffer protocol",
            Self::ArrayInterface => "__array_interface__",
            Self::Arrow => "__arrow_c_array__",
            Self::ArrowStream => "__arrow_c_stream__",
        })
    }
}

/// Imports a Python object as a tensor over the same memory.
///
/// The object's type publishes the C exchange API (`__dlpack_c_exchange_api__`) or has
/// `__dlpack__`, or the object is a DLPack capsule. Objects without DLPack are imported through
/// `__cuda_array_interface__`, the buffer protocol, `__array_interface__`, `__arrow_c_array__` or
/// `__arrow_c_stream__`, in this order. A stream of several chunks is imported only by a copy
/// ([`CopyMode::Always`]).
///
/// ```
/// use dlbridge_pyo3::{ImportOptions, import};
/// use pyo3::prelude::*;
/// use pyo3::types::PyBytes;
///
/// # Python::initialize();
/// # Python::attach(|py| -> dlbridge_pyo3::Result<()> {
/// let bytes = PyBytes::new(py, b"abc").into_any();
/// let tensor = import(bytes.as_borrowed(), ImportOptions::default())?.tensor;
/// assert!(tensor.is_read_only());
/// assert_eq!(tensor.view::<u8>()?.to_vec(), b"abc");
/// # Ok(()) }).unwrap();
/// ```
///
/// The tensor borrows the memory to read for as long as Rust has it, or a part or a clone of it: an argument to write
/// over the same memory is a `TypeError`, on whichever thread. [`TensorObject`](crate::TensorObject) keeps a tensor
/// without a borrow.
///
/// # Errors
///
/// The producer's own exception; a `TypeError` for an object without any of these protocols, or for memory that
/// an argument of a running function is to write; a
/// `BufferError` that names the field if the descriptor is rejected, or if the requested device,
/// copy or stream is not available. For an array of NumPy, a `BufferError` that names its dtype or
/// strides has NumPy's exception as its cause.
pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Imported> {
    let (Imported { tensor, protocol, stream }, _) = import_unread(object, options)?;
    Ok(Imported { tensor: borrow::kept(tensor)?, protocol, stream })
}

/// As [`import`], for a tensor that only Python gets, and the work after which it is ready, if that is known.
fn import_unread(
    object: Borrowed<'_, '_, PyAny>,
    options: ImportOptions,
) -> Result<(Imported, Option<Ready>)> {
    borrow::ready(object.py())?;
    if let Some((tensor, protocol)) = copied_chunks(object, options)? {
        return Ok((Imported { tensor, protocol, stream: None }, None));
    }
    // A stream is one of the device that is asked for (array API 2024.12, `dl_device`); the host has none.
    let asked = match (options.stream, options.device) {
        (Some(stream), Some(device)) if !Stream::exist_on(device) => {
            stream.number_on(device)?;
            None
        }
        (stream, _) => stream,
    };
    let (tensor, protocol, ready) = match asked {
        None => {
            let (tensor, protocol) = import_shared(object)?;
            (tensor, protocol, None)
        }
        Some(stream) => exporting(|| import_on_stream(object, stream))?,
    };
    let stream = stream_after(object, &tensor, protocol, asked)?;
    if options == ImportOptions::default() {
        return Ok((Imported { tensor, protocol, stream }, ready));
    }
    let address = tensor.data_ptr();
    let tensor = through_pyo3(|| request::deliver(object, tensor, stream, options))?;
    if tensor.data_ptr() == address {
        return Ok((Imported { tensor, protocol, stream }, ready));
    }
    // Other memory, on the host or made for the stream that was asked for.
    let stream = asked.unwrap_or(Stream::DEFAULT);
    let has_stream = Stream::exist_on(tensor.device()) && stream != Stream::NO_SYNC;
    Ok((Imported { tensor, protocol, stream: has_stream.then_some(stream) }, None))
}

impl TensorObject {
    /// Imports a Python object as [`import`](crate::import()) does, and stores the stream after
    /// whose work device memory is ready, for the consumers of this object.
    ///
    /// # Errors
    ///
    /// Those of [`import`](crate::import()) and of [`ready_after`](Self::ready_after).
    pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Self> {
        let requires_grad = requires_grad(object)?;
        let (Imported { tensor, stream, .. }, ready) = import_unread(object, options)?;
        let ready = match (ready, stream) {
            (None, Some(stream)) => Ready::on(stream, tensor.device())?,
            (ready, _) => ready,
        };
        let requires_grad = requires_grad && !tensor.is_copied();
        Ok(Self::imported(tensor, ready, requires_grad))
    }
}

/// Imports a Python object as an argument of a function: the same as [`import`] with the default
/// options, ready on the default stream. The memory is not borrowed yet.
#[inline]
pub(crate) fn import_argument(object: Borrowed<'_, '_, PyAny>) -> Result<borrow::Borrowed> {
    borrow::ready(object.py())?;
    let (memory, protocol) = import_by_path(object, path_of(object)?, true)?;
    if memory.tensor().device().kind == DeviceKind::CUDA {
        settle(object, memory.tensor(), protocol)?;
    }
    Ok(memory)
}

/// Makes the default stream wait for the stream on which the producer works.
#[cold]
fn settle(object: Borrowed<'_, '_, PyAny>, tensor: &Tensor, protocol: Protocol) -> Result<()> {
    match stream_after(object, tensor, protocol, None)? {
        Some(stream) => settle_after(stream, tensor.device()),
        None => Ok(()),
    }
}

/// Makes the default stream wait for the work that is queued on `stream` now.
#[cold]
pub(crate) fn settle_after(stream: Stream, device: Device) -> Result<()> {
    stream::settle(Ready::on(stream, device)?.as_ref(), Stream::DEFAULT, device)
}

/// Imports a Python object as any consumer takes it, also a tensor of this library, for inspection.
///
/// # Errors
///
/// As [`import`].
#[doc(hidden)]
pub fn import_as_consumer<R>(
    object: Borrowed<'_, '_, PyAny>,
    function: impl FnOnce(&Tensor, Protocol) -> Result<R>,
) -> Result<R> {
    borrow::ready(object.py())?;
    let path = path_of(object)?.map(Path::by_table);
    // Of JAX's arrays, the buffer says less than DLPack.
    let path = path.filter(|path| !matches!(path, Path::Jax));
    let (mut memory, protocol) = import_by_path(object, path, true)?;
    memory.read()?;
    function(memory.tensor(), protocol)
}

/// The copy of a column in chunks, if a copy on the host was requested and the object is one.
fn copied_chunks(
    object: Borrowed<'_, '_, PyAny>,
    options: ImportOptions,
) -> Result<Option<(Tensor, Protocol)>> {
    // A type with a fast path has no chunks, and is not asked for them.
    let is_asked = options.copy == CopyMode::Always
        && options.stream.is_none()
        && path_of(object)?.is_none()
        && options.device.is_none_or(|device| device == Device::CPU);
    if is_asked { exporting(|| columns::copy_chunks(object)) } else { Ok(None) }
}
