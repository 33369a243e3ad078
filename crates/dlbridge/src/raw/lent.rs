//! A tensor that is only lent: it describes somebody else's memory, and owns none.
//! Owning memory belongs to `managed`; a description that brings its own shape to `borrowed`.
//! Invariants: R1 and R2 of this folder; the handle inside is never given away.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use dlbridge_sys::DLTensor;

use super::Handle;
use crate::{Error, Flags, Tensor};

/// Memory that a plain descriptor describes, as a [`Tensor`] that owns nothing: no allocation, and
/// no copy of the shape unless the strides are null.
///
/// ```
/// use dlbridge::{Flags, LentTensor, Tensor};
///
/// let tensor = Tensor::from(vec![1.5_f32, 2.5]);
/// let descriptor = tensor.as_raw();
/// // SAFETY: described by `tensor`, which outlives what is lent.
/// let lent = unsafe { LentTensor::from_raw(&descriptor, Flags::READ_ONLY) }?;
/// assert_eq!(lent.view::<f32>()?.to_vec(), [1.5, 2.5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Debug)]
pub struct LentTensor<'a> {
    tensor: ManuallyDrop<Tensor>,
    descriptor: PhantomData<&'a DLTensor>,
}

impl<'a> LentTensor<'a> {
    /// Passes a plain descriptor through the gate.
    ///
    /// # Safety
    ///
    /// `tensor` satisfies `SAFETY.md`'s list of trust, and its memory is neither freed nor moved,
    /// for `'a`.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::from_raw`], less the version.
    #[inline(always)]
    pub unsafe fn from_raw(tensor: &'a DLTensor, flags: Flags) -> Result<Self, Error> {
        // SAFETY: the caller's duty; nothing here gives the handle away.
        let handle = unsafe { Handle::lend(NonNull::from(tensor), flags) }?;
        Ok(Self { tensor: ManuallyDrop::new(Tensor(handle)), descriptor: PhantomData })
    }
}

impl Deref for LentTensor<'_> {
    type Target = Tensor;

    #[inline(always)]
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}

impl Drop for LentTensor<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: this is its end (R7).
        unsafe { self.tensor.0.free_strides() };
    }
}
