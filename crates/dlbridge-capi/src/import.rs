//! Imports tensors from managed tensors and Python objects, and releases them.
//! Exporting belongs to `export`.
//! Invariant: a call that fails consumes nothing, and does not write to `out`.

use std::ffi::c_void;

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{ManagedTensor, Tensor};

use crate::entry::{contained, guarded, silent, write_out};
use crate::error::{Error, Status};
use crate::handle::{Origin, TensorHandle};
use crate::info::TensorInfo;
use crate::python::{self, PyObject};
use crate::sized;

/// Options for importing from a Python producer. Set `struct_size`, and zero the other fields:
/// `dlb_request request = {.struct_size = sizeof request};`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Request {
    /// `sizeof(dlb_request)`.
    pub struct_size: usize,
    /// The stream that waits for the memory, if `has_stream` is not 0: a handle of the device's
    /// driver, 1 for CUDA's legacy default stream, 2 for its per-thread default stream, or -1 for
    /// none: the caller orders the work, and `dlb_info` has no stream.
    pub stream: i64,
    /// Whether `stream` is given. It is ignored for host memory.
    pub has_stream: u8,
    /// Not 0: an exception that Python raised (`DLB_STATUS_PYTHON`) stays set, as functions of
    /// Python leave it. 0: it is cleared.
    pub keep_exception: u8,
    /// Must be zeros, because later versions may use them.
    pub reserved: [u8; 6],
}

// SAFETY: `Growing`'s duty: integers without padding.
unsafe impl sized::Growing for Request {
    const FIRST: usize = size_of::<Self>();
}

const NULL_MANAGED: Error =
    Error::Invalid("managed: expected a managed tensor, found a null pointer");
const RESERVED: Error = Error::Invalid(
    "reserved: expected zeros, found another byte: zero the struct first, or the program was compiled \
     for a newer library",
);
const NULL_OBJECT: Error = Error::Invalid("object: expected a Python object, found a null pointer");

/// # Safety
///
/// As for `dlb_from_versioned`.
unsafe fn import_managed<M: ManagedTensor>(managed: *mut M, out: *mut *mut TensorHandle) -> Status {
    let import = || {
        if managed.is_null() {
            return Err(NULL_MANAGED);
        }
        // SAFETY: the caller's duty.
        let tensor = unsafe { Tensor::from_raw(managed) }?;
        Ok(TensorHandle::into_raw(tensor, Origin::C, None))
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, import) }
}

/// Imports a versioned managed tensor (DLPack 1.x) after validating it. On success it belongs to
/// the handle; its deleter runs when the handle is released.
///
/// # Safety
///
/// `managed` is null or a valid tensor that the caller owns, whose producer keeps what SAFETY.md
/// trusts producers for. `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_versioned(
    managed: *mut DLManagedTensorVersioned,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    unsafe { import_managed(managed, out) }
}

/// Imports a legacy managed tensor (DLPack before 1.0); otherwise as `dlb_from_versioned`.
///
/// # Safety
///
/// As for `dlb_from_versioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_legacy(
    managed: *mut DLManagedTensor,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    unsafe { import_managed(managed, out) }
}

/// Calls the deleter of a managed tensor that was not imported.
fn delete(deleter: impl FnOnce()) {
    silent(|| contained((), || python::undisturbed(deleter)));
}

/// Calls the deleter of a versioned managed tensor that is not imported. Does nothing for null.
///
/// # Safety
///
/// `managed` is null or a valid tensor that the caller owns and gives up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the caller's duty.
    delete(|| unsafe { dlbridge::ffi::release_raw(managed) });
}

/// Calls the deleter of a legacy managed tensor that is not imported. Does nothing for null.
///
/// # Safety
///
/// As for `dlb_delete_versioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: the caller's duty.
    delete(|| unsafe { dlbridge::ffi::release_raw(managed) });
}

/// Imports a Python object's memory: through the C exchange API of its type, through `__dlpack__`,
/// or from a capsule, which is renamed. `request` may be null. No exception may be set.
///
/// An object that requires grad (PyTorch, Paddle) is read-only, because automatic differentiation would not
/// record what is written: import its `detach()` to write.
///
/// Memory of a device is ready on the stream that was asked for. Where none was, `dlb_info.stream`
/// is the producer's current stream if its type has an exchange table; otherwise it is ready on the
/// device's default stream.
///
/// # Safety
///
/// `object` is null or a live Python object, whose producer keeps what SAFETY.md trusts producers
/// for. `request` is null or can be read, `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_python(
    object: *mut PyObject,
    request: *const Request,
    out: *mut *mut TensorHandle,
) -> Status {
    let import = || {
        if object.is_null() {
            return Err(NULL_OBJECT);
        }
        let request = match request.is_null() {
            true => None,
            // SAFETY: the caller's duty.
            false => Some(unsafe { sized::read::<Request>(request) }?),
        };
        if request.is_some_and(|asked| asked.reserved != [0; 6]) {
            return Err(RESERVED);
        }
        let python = python::attached()?;
        // SAFETY: the caller's duty.
        let object = unsafe { python.borrow(object) }.ok_or(NULL_OBJECT)?;
        let stream = request.filter(|asked| asked.has_stream != 0).map(|asked| asked.stream);
        let keeps = request.is_some_and(|asked| asked.keep_exception != 0);
        match python::import(&object, stream) {
            Ok((tensor, stream)) => Ok(TensorHandle::into_raw(tensor, Origin::Python, stream)),
            Err(Error::Python(exception)) if keeps => Err(Error::Raised(exception)),
            Err(error) => Err(error),
        }
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, import) }
}

/// Adds a reference to a tensor and returns it; null for null. Each reference is released once: by
/// `dlb_release`, `dlb_queue_release`, or a call that consumes it.
///
/// # Safety
///
/// `tensor` is null or a live tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_retain(tensor: *mut TensorHandle) -> *mut TensorHandle {
    if !tensor.is_null() {
        // SAFETY: the caller's duty.
        unsafe { TensorHandle::retain(tensor) };
    }
    tensor
}

/// Describes a tensor; null for null. The struct, and what it points to, are valid until the last
/// reference to the tensor is released, or consumed by `dlb_into_*`.
///
/// # Safety
///
/// `tensor` is null or a live tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_tensor_info(tensor: *const TensorHandle) -> *const TensorInfo {
    // SAFETY: the caller's duty.
    match unsafe { TensorHandle::borrow(tensor) } {
        Ok(tensor) => &raw const *tensor.info(),
        Err(_) => std::ptr::null(),
    }
}

/// Whether a tensor is read-only for one reason alone: a legacy descriptor cannot say that its
/// memory may be written. 1 or 0; 0 for null. A caller that knows that the producer permits it may
/// write.
///
/// # Safety
///
/// `tensor` is null or a live tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_is_legacy_read_only(tensor: *const TensorHandle) -> u8 {
    // SAFETY: the caller's duty.
    unsafe { TensorHandle::borrow(tensor) }
        .is_ok_and(|tensor| tensor.tensor().is_legacy_read_only())
        .into()
}

/// Releases a reference. With the last one the producer's deleter runs, on this thread. For a tensor
/// of a Python object this may wait for the GIL. Python's exit waits for releases under way; after
/// that, a thread without the GIL leaks such a tensor. On a thread that is in another interpreter than
/// the tensor's, the deleter runs in the next call of this library in the right one.
///
/// A Python exception that is set stays set; one that a deleter leaves goes to `sys.unraisablehook`,
/// if the library has used Python before. Does nothing for null.
///
/// # Safety
///
/// `tensor` is null or a reference that the caller owns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_release(tensor: *mut TensorHandle) {
    // SAFETY: the caller's duty.
    unsafe { TensorHandle::release(tensor) };
}

/// Names the Python to use: a handle to libpython from `dlopen` (on Windows from `LoadLibrary`), which
/// is never closed. Needed only where Python's functions are not global names of the process; on
/// Windows all loaded DLLs are searched. The Python that was found first stays in use; naming another
/// one is `DLB_STATUS_INVALID`.
///
/// # Safety
///
/// `library` is null, or a handle as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_use_python(library: *mut c_void) -> Status {
    guarded(|| {
        if library.is_null() {
            return Err(Error::Invalid(
                "library: expected a handle of dlopen, found a null pointer",
            ));
        }
        // SAFETY: the caller's duty.
        unsafe { python::load_from(library) }
    })
}
