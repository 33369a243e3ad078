//! Tensors into C: from managed descriptors and from Python objects, and their release.
//! Giving tensors away does not belong here (see `export`).
//! Invariant: a handle is written to the caller only on success, and released once.

use std::ffi::c_void;

use dlbridge::Tensor;
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};

use crate::entry::{contained, guarded};
use crate::error::{Error, Result, Status};
use crate::info::TensorInfo;
use crate::python::{self, PyObject, Python};

/// A tensor with an owner. Opaque to C.
#[derive(Debug)]
pub struct TensorHandle {
    tensor: Tensor,
    info: TensorInfo,
}

// SAFETY: a tensor may change threads; the info only describes it (R9).
unsafe impl Send for TensorHandle {}

impl TensorHandle {
    pub(crate) fn into_raw(tensor: Tensor) -> *mut Self {
        // What the info points to is the tensor's own and does not move with it.
        let info = TensorInfo::of(&tensor);
        Box::into_raw(Box::new(Self { tensor, info }))
    }

    /// # Safety
    ///
    /// `handle` is null or a handle that the caller owns and gives up.
    pub(crate) unsafe fn take(handle: *mut Self) -> Result<Tensor> {
        // SAFETY: the caller's duty.
        let handle = unsafe { Self::own(handle) }.ok_or(NULL_TENSOR)?;
        Ok(handle.tensor)
    }

    /// # Safety
    ///
    /// As for [`take`](Self::take).
    pub(crate) unsafe fn own(handle: *mut Self) -> Option<Box<Self>> {
        // SAFETY: made by `into_raw`, and owned by the caller (R7).
        (!handle.is_null()).then(|| unsafe { Box::from_raw(handle) })
    }
}

const NULL_TENSOR: Error = Error::Invalid("tensor: found a null pointer");
pub(crate) const NULL_OUT: Error = Error::Invalid("out: found a null pointer");

/// Writes a new handle where C wants it.
///
/// # Safety
///
/// `out` is null or can be written.
unsafe fn hand_over(
    out: *mut *mut TensorHandle,
    import: impl FnOnce() -> Result<Tensor>,
) -> Status {
    guarded(|| {
        if out.is_null() {
            return Err(NULL_OUT);
        }
        let tensor = import()?;
        // SAFETY: the caller's duty.
        unsafe { out.write(TensorHandle::into_raw(tensor)) };
        Ok(())
    })
}

/// Takes over a managed tensor of DLPack 1.x, and checks it. A tensor that is refused stays the
/// caller's, untouched.
///
/// # Safety
///
/// `tensor` is null or a valid tensor that the caller owns and, on success, gives up; its producer
/// keeps what SAFETY.md trusts producers for. `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_versioned(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let import = || Ok(unsafe { Tensor::try_from_raw(tensor) }?);
    // SAFETY: the same.
    unsafe { hand_over(out, import) }
}

/// Takes over a managed tensor of DLPack before 1.0; otherwise as `dlb_from_versioned`.
///
/// # Safety
///
/// As for `dlb_from_versioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_legacy(
    tensor: *mut DLManagedTensor,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let import = || Ok(unsafe { Tensor::try_from_raw_legacy(tensor) }?);
    // SAFETY: the same.
    unsafe { hand_over(out, import) }
}

/// Takes a Python object's memory as a tensor: through the C exchange API of its type, through
/// `__dlpack__`, or out of a capsule, which is renamed.
///
/// # Safety
///
/// `object` is null or a live Python object; its producer keeps what SAFETY.md trusts producers
/// for. `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_from_python(
    object: *mut PyObject,
    out: *mut *mut TensorHandle,
) -> Status {
    let import = || {
        let python = Python::attached()?;
        // SAFETY: the caller's duty.
        let object = unsafe { python.borrow(object) }
            .ok_or(Error::Invalid("object: found a null pointer"))?;
        python::import(&object)
    };
    // SAFETY: the caller's duty.
    unsafe { hand_over(out, import) }
}

/// A compact row-major copy in memory of its own. The tensor stays as it is.
///
/// # Safety
///
/// `tensor` is null or a live tensor; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_copy(
    tensor: *const TensorHandle,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let tensor = unsafe { tensor.as_ref() };
    let copy = || Ok(tensor.ok_or(NULL_TENSOR)?.tensor.to_compact()?);
    // SAFETY: the caller's duty.
    unsafe { hand_over(out, copy) }
}

/// What a tensor is and where it lies; null for null. It belongs to the tensor.
///
/// # Safety
///
/// `tensor` is null or a live tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_tensor_info(tensor: *const TensorHandle) -> *const TensorInfo {
    // SAFETY: the caller's duty.
    match unsafe { tensor.as_ref() } {
        Some(tensor) => &raw const tensor.info,
        None => std::ptr::null(),
    }
}

/// Releases a tensor now: the producer's deleter runs on this thread. Null is fine.
///
/// # Safety
///
/// `tensor` is null or a tensor that the caller owns and gives up, with all that its info pointed
/// to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_release(tensor: *mut TensorHandle) {
    // SAFETY: the caller's duty.
    contained((), || drop(unsafe { TensorHandle::own(tensor) }));
}

/// Names the Python that is to be used: `library` is a handle to libpython as `dlopen` gives it,
/// which stays open for good. Needed only where Python's functions are not among the global names
/// of the process. The first Python found is kept.
///
/// # Safety
///
/// `library` is null, or a handle as described.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_use_python(library: *mut c_void) -> Status {
    guarded(|| {
        if library.is_null() {
            return Err(Error::Invalid("library: found a null pointer"));
        }
        // SAFETY: the caller's duty.
        unsafe { python::load_from(library) }
    })
}
