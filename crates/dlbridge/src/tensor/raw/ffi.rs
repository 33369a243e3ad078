//! Items that only language bindings need.

use dlbridge_sys::DLTensor;

pub use super::borrowed::BorrowedTensor;
use crate::raw::Handle;
pub use crate::raw::handle::KeepAlive;
use crate::raw::handle::ManagedTensor;
use crate::raw::handle::abi::not_null;
use crate::raw::handle::deferred::keep;
pub use crate::raw::handle::deferred::{Binding, DeferredDrop};
use crate::raw::handle::release::Nests;
use crate::{Access, ArcTensor, Error, Tensor};

/// As [`Tensor::try_from_raw`], but the binding decides when the deleter of the producer is called after
/// the last handle of the memory is dropped. This holds for all handles of the memory and their exports.
///
/// A process has one binding, the first. `binding` is called before its first tensor is imported.
///
/// # Safety
///
/// As for [`Tensor::try_from_raw`].
///
/// # Errors
///
/// As for [`Tensor::try_from_raw`].
#[inline(always)]
pub unsafe fn try_from_raw_bound<A: ManagedTensor>(
    tensor: *mut A,
    binding: fn() -> &'static Binding,
) -> Result<Tensor, Error> {
    keep(binding);
    // SAFETY: the caller's duty.
    unsafe { Handle::import(not_null(tensor)?, true) }.map(Tensor)
}

/// The tensor with another class.
///
/// # Safety
///
/// The class is true of the elements for as long as there are tensors over them (`SAFETY.md`, access
/// classes).
#[must_use]
pub unsafe fn assume_class(mut tensor: Tensor, access: Access) -> Tensor {
    // SAFETY: the caller's duty (R4).
    unsafe { tensor.0.set_access(access) };
    tensor
}

/// The tensor's descriptor, which is validated and has explicit strides. It neither moves nor changes
/// before the tensor is dropped, moved into another one, or borrowed mutably.
#[must_use]
#[inline]
pub fn descriptor(tensor: &Tensor) -> *const DLTensor {
    tensor.0.descriptor()
}

impl From<DeferredDrop> for Tensor {
    fn from(tensor: DeferredDrop) -> Self {
        Self(tensor.into_handle())
    }
}

impl Nests for Tensor {
    fn into_handle(self) -> Handle {
        self.0
    }
}

impl Nests for ArcTensor {
    fn into_handle(self) -> Handle {
        Tensor::from(self).0
    }
}
