//! The reference-counted handle of a tensor in C, with its description.
//! Making and consuming handles belongs to `import` and `export`.
//! Invariant: each reference is consumed once, by a release or by a call that succeeds.

use std::mem::ManuallyDrop;
use std::sync::Arc;

use dlbridge::{Flags, Tensor};

use crate::entry::silent;
use crate::error::{NULL_TENSOR, Result};
use crate::info::{Stream, TensorInfo};
use crate::python;

/// A tensor with an owner. Opaque to C.
#[derive(Debug)]
pub struct TensorHandle {
    tensor: ManuallyDrop<Tensor>,
    info: TensorInfo,
    origin: Origin,
}

/// The origin of a tensor's deleter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// A C program, or this library.
    C,
    /// A Python object.
    Python,
}

// SAFETY: a tensor may change threads; the info only describes it (R9).
unsafe impl Send for TensorHandle {}
// SAFETY: nothing of it changes while references are held (R9).
unsafe impl Sync for TensorHandle {}

impl TensorHandle {
    pub(crate) fn into_raw(tensor: Tensor, origin: Origin, stream: Stream) -> *mut Self {
        // What the info points to is the tensor's own and does not move with it.
        let info = TensorInfo::of(&tensor, stream);
        let tensor = ManuallyDrop::new(tensor);
        Arc::into_raw(Arc::new(Self { tensor, info, origin })).cast_mut()
    }

    /// The handle behind a pointer.
    ///
    /// # Safety
    ///
    /// `handle` is null or a handle that lives for `'a`.
    pub(crate) unsafe fn borrow<'a>(handle: *const Self) -> Result<&'a Self> {
        // SAFETY: the caller's duty.
        unsafe { handle.as_ref() }.ok_or(NULL_TENSOR)
    }

    /// Adds a reference.
    ///
    /// # Safety
    ///
    /// `handle` is a live handle.
    pub(crate) unsafe fn retain(handle: *const Self) {
        // SAFETY: made by `into_raw`, and alive (R7).
        unsafe { Arc::increment_strong_count(handle) };
    }

    /// The reference that C gives up.
    ///
    /// # Safety
    ///
    /// `handle` is null or a reference that the caller owns and gives up.
    pub(crate) unsafe fn own(handle: *const Self) -> Option<Arc<Self>> {
        // SAFETY: made by `into_raw` or counted by `retain`, and owned by the caller (R7).
        (!handle.is_null()).then(|| unsafe { Arc::from_raw(handle) })
    }

    /// Gives up a reference. The last one runs the deleter, which may wait for the GIL.
    ///
    /// # Safety
    ///
    /// As for [`own`](Self::own).
    pub(crate) unsafe fn release(handle: *const Self) {
        // SAFETY: the caller's duty.
        let last = unsafe { Self::own(handle) }.and_then(Arc::into_inner);
        if let Some(last) = last {
            silent(|| drop(last));
        }
    }

    /// The tensor of a reference that C gives up, to be exported by the versioned ABI, or by the
    /// legacy one after `ffi::check_legacy`. It shares its memory where there are other
    /// references: it is then no copy made for one consumer, and for the legacy ABI lacks the flags
    /// that this ABI does not have.
    ///
    /// # Safety
    ///
    /// `handle` is a reference that the caller owns and gives up.
    pub(crate) unsafe fn consume(handle: *const Self, versioned: bool) -> Tensor {
        // SAFETY: counted by `into_raw` or `retain`, and owned by the caller (R7).
        let handle = unsafe { Arc::from_raw(handle) };
        match Arc::try_unwrap(handle) {
            Ok(only) => {
                let mut only = ManuallyDrop::new(only);
                // SAFETY: the handle is not dropped, and its tensor is taken once (R7).
                unsafe { ManuallyDrop::take(&mut only.tensor) }
            }
            Err(shared) => {
                let absent = if versioned { Flags::NONE } else { Flags::READ_ONLY };
                let flags = shared.tensor.flags() - Flags::IS_COPIED - absent;
                let descriptor = shared.tensor.as_raw();
                // SAFETY: the lists and the elements are those of the tensor, which its owner keeps
                // alive (R2).
                let tensor =
                    unsafe { dlbridge::ffi::from_holder_raw(|| shared, &descriptor, flags) };
                tensor.expect("it was validated when the handle was made")
            }
        }
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(crate) fn info(&self) -> &TensorInfo {
        &self.info
    }
}

/// Runs the deleter.
impl Drop for TensorHandle {
    fn drop(&mut self) {
        // SAFETY: taken once, here, unless `consume` took it and the handle is not dropped (R7).
        let tensor = unsafe { ManuallyDrop::take(&mut self.tensor) };
        match self.origin {
            Origin::C => python::undisturbed(|| drop(tensor)),
            Origin::Python => python::release(tensor),
        }
    }
}
