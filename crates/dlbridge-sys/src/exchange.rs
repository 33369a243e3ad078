//! The table of C callbacks by which a Python array type exchanges tensors without Python calls.
//! This module only declares it; `dlbridge-pyo3` finds, caches and calls tables.
//! Invariant: every callback may be null, whatever the header requires of producers.

use core::ffi::{c_char, c_int, c_void};

use crate::{DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor};

/// Records why an allocation failed: a context, the kind of error and a message.
///
/// The header declares this type as a parameter of [`DLPackManagedTensorAllocator`], without a
/// name; the name is this crate's.
///
/// # Safety
///
/// The context is the one that was passed with this function. Kind and message are NUL-terminated
/// and valid only during the call. The kind should name a Python exception, but real producers also
/// send other words. An implementation that raises a Python exception attaches to the interpreter
/// itself, because the caller need not be attached.
pub type DLPackSetError =
    unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char);

/// Allocates a new tensor in the producer's framework (`DLPackManagedTensorAllocator`, since DLPack
/// 1.2).
///
/// Of the prototype, only dtype, ndim, shape and device are used. Returns 0 and writes the new
/// tensor to `out`; otherwise `set_error` was called once.
///
/// # Safety
///
/// The prototype and its shape are readable, `out` is writable, and `set_error` can be called with
/// `error_ctx`. The caller need not be attached to the interpreter, and owns the returned tensor.
/// The function must not unwind.
pub type DLPackManagedTensorAllocator = unsafe extern "C" fn(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    error_ctx: *mut c_void,
    set_error: Option<DLPackSetError>,
) -> c_int;

/// Exports a Python array as an owning tensor (`DLPackManagedTensorFromPyObjectNoSync`, since
/// DLPack 1.2).
///
/// Returns 0 and writes the tensor to `out`; otherwise a Python exception is set, a `BufferError`
/// if DLPack cannot describe the array. No stream waits for another.
///
/// # Safety
///
/// The thread is attached to the interpreter. `py_object` is a live `PyObject *` of the very type
/// that the table was found on; some producers do not check this and crash. `out` is writable. The
/// caller owns the returned tensor, and uses the data in the order of the producer's current stream
/// ([`DLPackCurrentWorkStream`]). The function must not unwind.
pub type DLPackManagedTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int;

/// Creates a Python array of the producer's type from an owning tensor
/// (`DLPackManagedTensorToPyObjectNoSync`, since DLPack 1.2).
///
/// Returns 0 and writes a new reference to `out_py_object`; otherwise -1, and a Python exception is
/// set. No stream waits for another.
///
/// # Safety
///
/// The thread is attached to the interpreter. `tensor` is owned by the caller and valid;
/// `out_py_object` is writable. A call that returns 0 has taken ownership of the tensor: the caller
/// does not release it. The header does not say who owns it after a failure; real producers leave
/// it with the caller. The function must not unwind.
pub type DLPackManagedTensorToPyObjectNoSync = unsafe extern "C" fn(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int;

/// Borrows the descriptor of a Python array, without owning it
/// (`DLPackDLTensorFromPyObjectNoSync`, since DLPack 1.2).
///
/// Returns 0 and fills `out`; otherwise -1, and a Python exception is set. No stream waits for
/// another. There are no flags, so a read-only array cannot be told from a writable one.
///
/// # Safety
///
/// The thread is attached to the interpreter. `py_object` is a live `PyObject *` of the very type
/// that the table was found on. `out` is writable, and nothing in it is released. The producer
/// guarantees data, shape and strides only until control returns to it, so until then the caller
/// keeps the object alive and runs no code that could change it. The function must not unwind.
pub type DLPackDLTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut DLTensor) -> c_int;

/// Returns the stream that the producer's framework uses now (`DLPackCurrentWorkStream`, since
/// DLPack 1.2).
///
/// Returns 0 and writes a stream handle such as a `cudaStream_t`; otherwise -1, and a Python
/// exception is set. For the CPU the call is unnecessary and returns null.
///
/// # Safety
///
/// The thread is attached to the interpreter. `out_current_stream` is writable and holds null
/// before the call, because real producers return 0 without writing. The producer supports the
/// device: some crash when asked for one that they were built without. The function must not
/// unwind.
pub type DLPackCurrentWorkStream = unsafe extern "C" fn(
    device_type: DLDeviceType,
    device_id: i32,
    out_current_stream: *mut *mut c_void,
) -> c_int;

/// The part of the table that keeps its layout in every version (struct `DLPackExchangeAPIHeader`,
/// since DLPack 1.2).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPIHeader {
    /// The version of the table. If the major number is not
    /// [`DLPACK_MAJOR_VERSION`](crate::DLPACK_MAJOR_VERSION), only this header may be read.
    pub version: DLPackVersion,
    /// The producer's table for an older version, or null. A consumer that does not support this
    /// major version may follow the chain to one that it supports.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// A Python array type's callbacks (struct `DLPackExchangeAPI`, since DLPack 1.2).
///
/// The type publishes it as the attribute `__dlpack_c_exchange_api__`: a capsule with the name
/// `dlpack_exchange_api` whose pointer is the table. The table lives as long as the process, so a
/// consumer may cache it per type. Each field says whether the header permits null; check all of
/// them, because real producers differ.
///
/// A table in a `static` needs a wrapper type, because the header's pointer is not [`Sync`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPI {
    /// Version and chain; read this first.
    pub header: DLPackExchangeAPIHeader,
    /// Allocates a new tensor. The header forbids null.
    pub managed_tensor_allocator: Option<DLPackManagedTensorAllocator>,
    /// Exports an array as an owning tensor. The header forbids null.
    pub managed_tensor_from_py_object_no_sync: Option<DLPackManagedTensorFromPyObjectNoSync>,
    /// Creates an array from an owning tensor. The header forbids null.
    pub managed_tensor_to_py_object_no_sync: Option<DLPackManagedTensorToPyObjectNoSync>,
    /// Borrows the descriptor of an array. Null if the producer does not support it.
    pub dltensor_from_py_object_no_sync: Option<DLPackDLTensorFromPyObjectNoSync>,
    /// Returns the current stream. The header forbids null.
    pub current_work_stream: Option<DLPackCurrentWorkStream>,
}
