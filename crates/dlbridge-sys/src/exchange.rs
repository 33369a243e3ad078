//! The table of C callbacks by which a Python array type exchanges tensors without Python calls.
//! Finding the table, caching it and calling it must not live here.
//! Invariant: no callback is assumed to be there, whatever the header demands of producers.

use core::ffi::{c_char, c_int, c_void};

use crate::{DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor};

/// Takes note of why an allocation failed: a context, the kind of error and a message.
///
/// The header spells this type out as a parameter of [`DLPackManagedTensorAllocator`] and gives it
/// no name; the name is ours.
///
/// # Safety
///
/// The context is the one that came with this function. Kind and message are NUL-terminated and
/// only valid during the call; the kind should name a Python exception, and real producers also
/// send other words. An implementation that raises a Python exception attaches to the interpreter
/// by itself, because the caller need not be attached.
pub type DLPackSetError =
    unsafe extern "C" fn(error_ctx: *mut c_void, kind: *const c_char, message: *const c_char);

/// Makes a new tensor in the producer's framework (`DLPackManagedTensorAllocator`, since DLPack
/// 1.2).
///
/// Of the prototype, only dtype, ndim, shape and device count. Returns 0 and writes the new tensor
/// to `out`; otherwise `set_error` was called once.
///
/// # Safety
///
/// The prototype and its shape are readable, `out` is writable, and `set_error` can be called with
/// `error_ctx`. The caller need not be attached to the interpreter. It owns the tensor it gets. The
/// function must not unwind.
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
/// that the table was found on; some producers do not check it and crash. `out` is writable. The
/// caller owns the tensor it gets, and uses the data in the order of the producer's current stream
/// ([`DLPackCurrentWorkStream`]). The function must not unwind.
pub type DLPackManagedTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int;

/// Makes a Python array of the producer's type from an owning tensor
/// (`DLPackManagedTensorToPyObjectNoSync`, since DLPack 1.2).
///
/// Returns 0 and writes a new reference to `out_py_object`; otherwise -1, and a Python exception is
/// set. No stream waits for another.
///
/// # Safety
///
/// The thread is attached to the interpreter. `tensor` is owned by the caller and valid;
/// `out_py_object` is writable. A call that returns 0 took the tensor: the caller does not release
/// it. The header does not say who owns it after a failure; real producers leave it with the
/// caller. The function must not unwind.
pub type DLPackManagedTensorToPyObjectNoSync = unsafe extern "C" fn(
    tensor: *mut DLManagedTensorVersioned,
    out_py_object: *mut *mut c_void,
) -> c_int;

/// Describes a Python array for a short while, without owning it
/// (`DLPackDLTensorFromPyObjectNoSync`, since DLPack 1.2).
///
/// Returns 0 and fills `out`; otherwise -1, and a Python exception is set. No stream waits for
/// another. There are no flags, so a read-only array cannot be told from a writable one.
///
/// # Safety
///
/// The thread is attached to the interpreter. `py_object` is a live `PyObject *` of the very type
/// that the table was found on. `out` is writable; nothing in it needs releasing. The producer
/// vouches for data, shape and strides only until control goes back to it, so until then the caller
/// keeps the object alive and runs nothing that could change it. The function must not unwind.
pub type DLPackDLTensorFromPyObjectNoSync =
    unsafe extern "C" fn(py_object: *mut c_void, out: *mut DLTensor) -> c_int;

/// Tells which stream the producer's framework works on now (`DLPackCurrentWorkStream`, since
/// DLPack 1.2).
///
/// Returns 0 and writes a stream handle such as a `cudaStream_t`; otherwise -1, and a Python
/// exception is set. For the CPU nobody has to ask, and the answer is null.
///
/// # Safety
///
/// The thread is attached to the interpreter. `out_current_stream` is writable and holds null
/// before the call, because real producers return 0 without writing. The producer knows the device:
/// some crash when asked for one that they were built without. The function must not unwind.
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
    /// The producer's table for an older version, or null. A consumer that does not know this
    /// major version may walk along the chain to one that it knows.
    pub prev_api: *mut DLPackExchangeAPIHeader,
}

/// A Python array type's callbacks (struct `DLPackExchangeAPI`, since DLPack 1.2).
///
/// The type has it as the attribute `__dlpack_c_exchange_api__`: a capsule with the name
/// `dlpack_exchange_api` whose pointer is the table. The table lives as long as the process, so a
/// consumer may remember it for each type. Whether a null callback is permitted is said at each
/// field; check all of them, because real producers differ.
///
/// A table in a `static` needs a wrapper type, because the header's pointer is not [`Sync`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLPackExchangeAPI {
    /// Version and chain; look here first.
    pub header: DLPackExchangeAPIHeader,
    /// Makes a new tensor. The header forbids null.
    pub managed_tensor_allocator: Option<DLPackManagedTensorAllocator>,
    /// Exports an array as an owning tensor. The header forbids null.
    pub managed_tensor_from_py_object_no_sync: Option<DLPackManagedTensorFromPyObjectNoSync>,
    /// Makes an array from an owning tensor. The header forbids null.
    pub managed_tensor_to_py_object_no_sync: Option<DLPackManagedTensorToPyObjectNoSync>,
    /// Describes an array for a short while. Null where the producer cannot do it.
    pub dltensor_from_py_object_no_sync: Option<DLPackDLTensorFromPyObjectNoSync>,
    /// Tells the current stream. The header forbids null.
    pub current_work_stream: Option<DLPackCurrentWorkStream>,
}
