//! Items that only language bindings need.

pub use super::borrowed::BorrowedTensor;
use crate::raw::Handle;
use crate::raw::descriptor::ManagedTensor;
use crate::raw::descriptor::binding::keep;
pub use crate::raw::descriptor::binding::{Binding, DeferredDrop};
use crate::raw::descriptor::foreign::Foreign;
pub use crate::raw::descriptor::keep::Keep;
use crate::raw::descriptor::release::Nests;
use crate::{Error, SharedTensor, Tensor};

/// As [`Tensor::try_from_raw`], but the binding decides when the producer's deleter is called after
/// the memory's last handle is dropped. All handles of the memory keep this, and exports of them.
///
/// The first binding of a process is that of all. `binding` is called before its first tensor is
/// taken.
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
    unsafe { Handle::import(Foreign::new(tensor)?, true) }.map(Tensor)
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

impl Nests for SharedTensor {
    fn into_handle(self) -> Handle {
        Tensor::from(self).0
    }
}
