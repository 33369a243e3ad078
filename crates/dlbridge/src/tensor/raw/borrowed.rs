//! `BorrowedTensor`: a `Tensor` over a plain descriptor of memory that it does not own (R1, R2).
//! Invariant: the handle inside is never exported.

use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::ptr::NonNull;

use dlbridge_sys::DLTensor;

use crate::raw::Handle;
use crate::raw::descriptor::validate::{is_ordinary, validate_any};
use crate::raw::handle::metadata::Metadata;
use crate::{Access, Error, Flags, MAX_RANK, Tensor};

/// A [`Tensor`] over a plain descriptor, which owns nothing: no allocation, and no deleter.
///
/// ```
/// use dlbridge::ffi::BorrowedTensor;
/// use dlbridge::{Flags, Tensor};
///
/// let tensor = Tensor::from(vec![1.5_f32, 2.5]);
/// let mut descriptor = tensor.as_raw();
/// let mut strides = BorrowedTensor::NO_STRIDES;
/// // SAFETY: the descriptor of `tensor`, which outlives `borrowed`.
/// let borrowed =
///     unsafe { BorrowedTensor::from_raw(&mut descriptor, &mut strides, Flags::READ_ONLY) }?;
/// assert_eq!(borrowed.view::<f32>()?.to_vec(), [1.5, 2.5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Debug)]
pub struct BorrowedTensor<'a> {
    tensor: ManuallyDrop<Tensor>,
    descriptor: PhantomData<&'a mut DLTensor>,
}

impl<'a> BorrowedTensor<'a> {
    /// Space for the strides of a descriptor that has none.
    pub const NO_STRIDES: [MaybeUninit<i64>; MAX_RANK] =
        [const { MaybeUninit::uninit() }; MAX_RANK];

    /// Validates a plain descriptor. A descriptor without strides gets contiguous ones, stored in
    /// `strides`.
    ///
    /// # Safety
    ///
    /// `tensor` satisfies the list of [`Tensor::from_raw`], and its memory is neither freed nor moved,
    /// for `'a`.
    ///
    /// # Errors
    ///
    /// As for [`Tensor::from_raw`], less the version.
    #[inline(always)]
    pub unsafe fn from_raw(
        tensor: &'a mut DLTensor,
        strides: &'a mut [MaybeUninit<i64>; MAX_RANK],
        flags: Flags,
    ) -> Result<Self, Error> {
        // SAFETY: the caller's duty.
        if !unsafe { is_ordinary(tensor) } {
            // SAFETY: the same.
            unsafe { validate_unusual(tensor, strides, flags) }?;
        }
        let metadata = Metadata::new(flags, Access::IMPORTED);
        // SAFETY: validated just now, and it has strides (R1); the handle is never exported.
        let handle = unsafe { Handle::borrowed(NonNull::from(tensor), metadata) };
        Ok(Self { tensor: ManuallyDrop::new(Tensor(handle)), descriptor: PhantomData })
    }
}

/// # Safety
///
/// As for [`validate_any`].
#[cold]
#[inline(never)]
unsafe fn validate_unusual(
    tensor: &mut DLTensor,
    room: &mut [MaybeUninit<i64>; MAX_RANK],
    flags: Flags,
) -> Result<(), Error> {
    // SAFETY: the caller's duty.
    if let Some(strides) = unsafe { validate_any(tensor, flags) }? {
        for (place, &stride) in room.iter_mut().zip(strides.iter()) {
            place.write(stride);
        }
        tensor.strides = room.as_mut_ptr().cast();
    }
    Ok(())
}

impl Deref for BorrowedTensor<'_> {
    type Target = Tensor;

    #[inline(always)]
    fn deref(&self) -> &Tensor {
        &self.tensor
    }
}
