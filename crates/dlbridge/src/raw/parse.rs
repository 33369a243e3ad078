//! The one gate: a raw descriptor goes in, and passes, or the reason why not comes out.
//! Ownership does not belong here (see `managed`): the gate neither frees nor keeps anything.
//! Invariant: what it lets through satisfies R1, whatever the descriptor's fields were.

use std::ptr::NonNull;
use std::slice;

use dlbridge_sys::DLTensor;

use super::marks::Marks;
use super::parts::{Checked, device, dtype};
use crate::layout::{self, Span, Unit};
use crate::{Access, DType, Error, Flags, MAX_RANK};

/// Checks a descriptor. Where it has no strides, as old producers' have not, they are made: whoever
/// keeps what is returned frees them, with [`free_strides`], if its marks say so.
///
/// # Safety
///
/// `tensor` is valid for reads; if `ndim` is positive, a `shape` or `strides` that is not null
/// points to that many `i64` (trust T2).
#[inline(always)]
pub(super) unsafe fn parse(tensor: *const DLTensor, flags: Flags) -> Result<Checked, Error> {
    // SAFETY: the caller's duty; nobody writes it meanwhile (trust T1).
    let tensor = unsafe { &*tensor };
    let unit = unit(dtype(tensor), flags)?;
    let ndim = tensor.ndim;
    let rank = match usize::try_from(ndim) {
        Ok(rank) if rank <= MAX_RANK => rank,
        _ => return Err(Error::RankOutOfRange { ndim }),
    };
    // SAFETY: `rank` is `ndim`, and the rest is the caller's duty.
    let Some(shape) = (unsafe { list(tensor.shape, rank) }) else {
        return Err(Error::NullShape { ndim });
    };
    // SAFETY: the same.
    if let Some(strides) = unsafe { list(tensor.strides, rank) } {
        let (len, access) = check(tensor, unit, flags, shape, strides)?;
        let (strides, marks) = (NonNull::from(strides).cast(), Marks::new(flags, access));
        return Ok(Checked { strides, len, marks });
    }
    fill_strides(tensor, unit, flags, shape)
}

/// What an element takes, if there can be one of this type.
#[inline]
fn unit(dtype: DType, flags: Flags) -> Result<Unit, Error> {
    if !dtype.is_ordinary() {
        if let Some(reason) = dtype.impossible() {
            return Err(Error::ImpossibleDType { dtype, reason });
        }
    }
    Ok(Unit::new(dtype, flags))
}

/// # Safety
///
/// A pointer that is not null points to `rank` numbers that stay for `'a`.
#[inline]
unsafe fn list<'a>(numbers: *const i64, rank: usize) -> Option<&'a [i64]> {
    match (numbers.is_null(), rank) {
        (_, 0) => Some(&[]),
        (true, _) => None,
        // SAFETY: not null, and the rest is the caller's duty.
        _ => Some(unsafe { slice::from_raw_parts(numbers, rank) }),
    }
}

/// Makes the strides of a compact tensor, which is what null strides mean.
#[cold]
fn fill_strides(
    tensor: &DLTensor,
    unit: Unit,
    flags: Flags,
    shape: &[i64],
) -> Result<Checked, Error> {
    let mut strides = vec![0; shape.len()].into_boxed_slice();
    layout::compact_strides(shape, &mut strides);
    let (len, access) = check(tensor, unit, flags, shape, &strides)?;
    let strides = NonNull::from(Box::leak(strides)).cast();
    Ok(Checked { strides, len, marks: Marks::new(flags, access).with_own_strides() })
}

/// # Safety
///
/// The strides were made by [`parse`] for a tensor of this rank, and nobody borrows them any more.
#[cold]
pub(super) unsafe fn free_strides(strides: NonNull<i64>, rank: usize) {
    let strides = NonNull::slice_from_raw_parts(strides, rank);
    // SAFETY: leaked from a box of this length by `fill_strides`, freed once by the caller's duty.
    drop(unsafe { Box::from_raw(strides.as_ptr()) });
}

/// The number of elements, and the class of their memory.
#[inline(always)]
fn check(
    tensor: &DLTensor,
    unit: Unit,
    flags: Flags,
    shape: &[i64],
    strides: &[i64],
) -> Result<(usize, Access), Error> {
    let span = layout::span(shape, strides)?;
    if span.len == 0 {
        return Ok((0, class(flags)));
    }
    if tensor.data.is_null() {
        return Err(Error::NullData { len: span.len });
    }
    let Some((below, above)) = unit.reach(span) else { return Err(too_large(unit, span)) };
    if !device(tensor).kind.has_addresses() {
        return Ok((span.len, Access::Shared));
    }
    let offset = usize::try_from(tensor.byte_offset).ok();
    let origin = offset.and_then(|offset| tensor.data.addr().checked_add(offset));
    match origin {
        // No element lies at null, either.
        Some(at) if at > below && at.checked_add(above).is_some() => Ok((span.len, class(flags))),
        _ => Err(Error::AddressOverflow { byte_offset: tensor.byte_offset }),
    }
}

#[cold]
fn too_large(unit: Unit, span: Span) -> Error {
    let what = if unit.size(span.len).is_none() { "byte size" } else { "strided span" };
    Error::SizeOverflow { what }
}

/// The class of foreign memory: a copy made for us is ours alone (trust T5).
#[inline]
fn class(flags: Flags) -> Access {
    if !flags.contains(Flags::IS_COPIED) {
        Access::Shared
    } else if flags.contains(Flags::READ_ONLY) {
        Access::Frozen
    } else {
        Access::Exclusive
    }
}
