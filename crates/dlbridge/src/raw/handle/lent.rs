//! The second descriptor of a header, which one consumer at a time has while handles share the header.
//! Invariant: R3: what is lent counts as a handle.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use dlbridge_sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};

use super::abi::{Abi, Own};
use super::header::{Header, delete, drop_handle};
use crate::raw::descriptor::checked::{Checked, describe};
use crate::raw::unwind::catch;

/// A descriptor with lists of its own.
#[repr(C)]
pub(super) struct Lent {
    managed: DLManagedTensorVersioned,
    shape: [i64; LENT_RANK],
    strides: [i64; LENT_RANK],
}

/// The highest rank of a descriptor that is lent.
const LENT_RANK: usize = 4;

/// The place of [`Header::lent`].
pub(super) const LENT_AT: usize = std::mem::offset_of!(Header, lent);

/// The deleters of what [`lend`] exports: a static, as those of all exports are.
pub(super) static LENT: Own = (take_back, delete::<DLManagedTensor>);

/// Exports a header that other handles share by its second descriptor, unless a consumer has it.
///
/// # Safety
///
/// The caller has a handle, and `checked` describes its memory. With `Some`, the caller forgets the
/// handle: the export counts in its place.
#[inline]
pub(crate) unsafe fn lend(
    header: NonNull<Header>,
    checked: &Checked<'_>,
) -> Option<NonNull<DLManagedTensorVersioned>> {
    let (shape, strides) = (checked.shape(), checked.strides());
    if shape.len() > LENT_RANK {
        return None;
    }
    // SAFETY: alive, by the caller's duty; no consumer writes the mark (R6).
    let is_lent = unsafe { &(*header.as_ptr()).is_lent };
    // Acquire: the last consumer had done with it before.
    if is_lent.swap(true, Ordering::Acquire) {
        return None;
    }
    let lent = header.as_ptr().wrapping_byte_add(LENT_AT).cast::<Lent>();
    let list_at = |offset| lent.wrapping_byte_add(offset).cast::<i64>();
    let tensor = DLTensor {
        shape: list_at(std::mem::offset_of!(Lent, shape)),
        strides: list_at(std::mem::offset_of!(Lent, strides)),
        ..describe(checked)
    };
    // A copy of a known length, instead of a call of `memcpy`.
    let filled = |list: &[i64]| std::array::from_fn(|axis| list.get(axis).copied().unwrap_or(0));
    let managed = Abi::new(header.as_ptr().cast::<c_void>(), LENT, checked.flags, tensor);
    let content = Lent { managed, shape: filled(shape), strides: filled(strides) };
    // SAFETY: a field of the header, which no consumer has now (asked just now; R6).
    unsafe { lent.write(content) };
    NonNull::new(lent.cast())
}

/// The deleter of what [`lend`] exports.
///
/// # Safety
///
/// `tensor` came from [`lend`] and is deleted once.
unsafe extern "C" fn take_back(tensor: *mut DLManagedTensorVersioned) {
    let Some(tensor) = NonNull::new(tensor) else { return };
    // SAFETY: `lend` returned this field of a header, and the consumer owned a handle (R3, C2).
    let header: NonNull<Header> = unsafe { tensor.byte_sub(LENT_AT) }.cast();
    // Release: the consumer had done with it before the next `lend`.
    // SAFETY: alive as long as the consumer's handle counts; no consumer writes the mark (R6).
    unsafe { &(*header.as_ptr()).is_lent }.store(false, Ordering::Release);
    // SAFETY: the consumer's handle, which ends here, once (R3, C2).
    let _ = catch(|| unsafe { drop_handle(header) });
}
