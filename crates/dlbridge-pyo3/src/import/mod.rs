//! From a Python object to a tensor over its memory.
//!
//! | file | job |
//! | --- | --- |
//! | `shared` | imports the producer's memory by the fastest path of its type |
//! | `exchange`, `refusals` | ... through the exchange table of the type |
//! | `dlpack` | ... by a call of `__dlpack__` |
//! | `fallback` | ... through another protocol |
//! | `on_stream` | ... ready for a stream |
//! | `deliver` | moves the memory to another device, or copies it |
//! | `advice` | errors, with the call that helps |
//! | `options` | what is asked of an import, and which protocol answered |
//!
//! Invariant: each protocol is tried once, the fastest first. A failure other than a missing
//! protocol ends the import.

mod advice;
pub(crate) mod autograd;
mod deliver;
mod dlpack;
mod exchange;
pub(crate) mod fallback;
mod on_stream;
mod options;
mod refusals;
mod shared;

use dlbridge::ffi::BorrowedTensor;
pub use dlbridge::protocol::import::CopyMode;
use dlbridge::{Device, Tensor};
use pyo3::Borrowed;
use pyo3::prelude::*;

pub(crate) use exchange::current_stream;
pub use options::{ImportOptions, Protocol};

use shared::{describe, import_by_path, import_shared};

use crate::ffi::borrow::{self, Reading};
use crate::ffi::descriptor::DescriptorSpace;
use crate::ffi::interpreter::through_pyo3;
use crate::stream::Stream;
use crate::types::path_of;
use crate::{Result, TensorObject, release};

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
    let Imported { tensor, protocol, stream } = import_unread(object, options)?;
    Ok(Imported { tensor: borrow::kept(tensor)?, protocol, stream })
}

/// As [`import`], for a tensor that only Python gets.
fn import_unread(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Imported> {
    if let Some((tensor, protocol)) = copied_chunks(object, options)? {
        return Ok(Imported { tensor, protocol, stream: None });
    }
    let (tensor, protocol) = match options.stream {
        None => import_shared(object)?,
        Some(stream) => through_pyo3(|| on_stream::import_on_stream(object, stream))?,
    };
    let stream = on_stream::stream_after(object, &tensor, protocol, options.stream)?;
    if options == ImportOptions::default() {
        return Ok(Imported { tensor, protocol, stream });
    }
    let address = tensor.data_ptr();
    let tensor = through_pyo3(|| deliver::deliver(object, tensor, stream, options))?;
    if tensor.data_ptr() == address {
        return Ok(Imported { tensor, protocol, stream });
    }
    // Other memory, on the host or made for the stream that was asked for.
    let stream = options.stream.unwrap_or(Stream::DEFAULT);
    let has_stream = Stream::exist_on(tensor.device()) && stream != Stream::NO_SYNC;
    Ok(Imported { tensor, protocol, stream: has_stream.then_some(stream) })
}

impl TensorObject {
    /// Imports a Python object as [`import`](crate::import()) does, and stores the stream after
    /// whose work device memory is ready, for the consumers of this object.
    ///
    /// # Errors
    ///
    /// Those of [`import`](crate::import()) and of [`ready_after`](Self::ready_after).
    pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Self> {
        let requires_grad = autograd::requires_grad(object)?;
        let Imported { tensor, stream, .. } = import_unread(object, options)?;
        let requires_grad = requires_grad && !tensor.is_copied();
        Self::imported(tensor, stream, requires_grad)
    }
}

/// What [`import`] made of a Python object.
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

/// Imports a Python object as an argument of a function: the same as [`import`] with the default
/// options, without asking for the stream.
#[inline]
pub(crate) fn import_tensor(object: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    import_shared(object).map(|(tensor, _)| tensor)
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
    let (tensor, protocol) = import_by_path(object, path_of(object))?;
    function(&*Reading::new(&tensor)?, protocol)
}

/// Calls `function` with a borrow of an object's memory. For types with the C exchange API and for
/// NumPy arrays, this allocates nothing and calls no deleter. Other objects are imported for the
/// length of the call.
///
/// Until `function` returns, the memory is borrowed to read: an argument that would write it is refused.
///
/// The tensor is flagged [`READ_ONLY`](dlbridge::Flags::READ_ONLY) if it came through the exchange
/// API, whose borrowed descriptors have no flags.
///
/// ```
/// use dlbridge_pyo3::with_borrowed;
/// use pyo3::prelude::*;
///
/// fn first(x: &Bound<'_, PyAny>) -> dlbridge_pyo3::Result<f64> {
///     // SAFETY: nothing in the closure runs Python code, which might resize `x`.
///     unsafe { with_borrowed(x.as_borrowed(), |x| Ok(x.view::<f64>()?.item()?)) }
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
/// From the moment `function` is called until it returns, the object's memory is not moved, resized
/// or freed. (All Python code that this call itself runs comes before that moment.) So:
///
/// - `function` runs no Python code that reaches the object, and does not detach from the
///   interpreter. Python code also runs where Python objects, and tensors over their memory, are
///   dropped.
/// - No other thread is inside an operation that moves, resizes or frees the memory (`resize_` or
///   `set_` of PyTorch, `resize` of NumPy) or changes the object's shape. With the GIL, Python code
///   of other threads waits, but not an operation that a framework began before and runs without
///   the GIL. On a free-threaded build nothing waits: the caller must know that no other thread has
///   the object, or document for its own callers that none may change it (`SAFETY.md`,
///   T12), as NumPy does.
///
/// # Errors
///
/// Those of [`import`], and those of `function`.
#[inline]
#[allow(unsafe_code, reason = "its caller promises that the memory stays")]
pub unsafe fn with_borrowed<R>(
    object: Borrowed<'_, '_, PyAny>,
    function: impl FnOnce(&Tensor) -> Result<R>,
) -> Result<R> {
    release::drain(object.py());
    // One by one, so that neither is moved.
    let mut space = DescriptorSpace::empty();
    let mut strides = BorrowedTensor::NO_STRIDES;
    let (described, imported);
    let tensor = match describe(object, &mut space)? {
        Some(found) => {
            let (descriptor, flags) = found.parts();
            // SAFETY: described by a table, whose producer is trusted as SAFETY.md lists, or of an
            // array, which the caller borrows (F9); alive and unchanged until `function` returns
            // (the caller's duty).
            described = unsafe { BorrowedTensor::from_raw(descriptor, &mut strides, flags) }?;
            &*described
        }
        None => {
            imported = import_to_borrow(object)?;
            &imported
        }
    };
    // Called in one place, where it is inlined.
    function(&*Reading::new(tensor)?)
}

/// Out of line, to keep the fast path small.
#[cold]
#[inline(never)]
fn import_to_borrow(object: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    import_shared(object).map(|(tensor, _)| tensor)
}

/// The copy of a column in chunks, if a copy on the host was requested and the object is one.
fn copied_chunks(
    object: Borrowed<'_, '_, PyAny>,
    options: ImportOptions,
) -> Result<Option<(Tensor, Protocol)>> {
    let is_asked = options.copy == CopyMode::Always
        && options.stream.is_none()
        && options.device.is_none_or(|device| device == Device::CPU);
    if is_asked { through_pyo3(|| fallback::copy_chunks(object)) } else { Ok(None) }
}
