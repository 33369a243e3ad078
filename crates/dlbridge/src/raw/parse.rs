//! The one gate: a raw descriptor goes in, checked `Parts` come out, or the reason why not.
//! Ownership does not belong here (see `managed`): the gate neither frees nor keeps anything.
//! Invariant: what it lets through satisfies R1, whatever the descriptor's fields were.

use std::ptr::NonNull;
use std::slice;

use dlbridge_sys::DLTensor;

use super::Parts;
use crate::dtype::TypeCode;
use crate::layout::{self, Span, Unit};
use crate::{Access, DType, Device, DeviceKind, Error, Flags, MAX_RANK};

/// Strides that had to be made, since an old producer gave none; freed by whoever keeps the parts.
pub(super) type FilledStrides = Option<NonNull<[i64]>>;

/// Checks a descriptor and borrows its shape and strides.
///
/// # Safety
///
/// `tensor` is valid for reads; if `ndim` is positive, a `shape` or `strides` that is not null
/// points to that many `i64` (trust T2). All of this holds for `'a`, and the made strides are
/// kept for `'a`.
#[inline(always)]
pub(super) unsafe fn parse<'a>(
    tensor: *const DLTensor,
    flags: Flags,
) -> Result<(Parts<'a>, FilledStrides), Error> {
    // SAFETY: the caller's duty.
    let tensor = unsafe { &*tensor };
    let dtype = DType {
        code: TypeCode(tensor.dtype.code.0),
        bits: tensor.dtype.bits,
        lanes: tensor.dtype.lanes,
    };
    if let Some(reason) = dtype.impossible() {
        return Err(Error::ImpossibleDType { dtype, reason });
    }
    let rank = match usize::try_from(tensor.ndim) {
        Ok(rank) if rank <= MAX_RANK => rank,
        _ => return Err(Error::RankOutOfRange { ndim: tensor.ndim }),
    };
    // SAFETY: `rank` is `ndim`, and the rest is the caller's duty.
    let shape = unsafe { list(tensor.shape, rank) };
    let shape = shape.ok_or(Error::NullShape { ndim: tensor.ndim })?;
    // SAFETY: the same.
    let (strides, filled) = match unsafe { list(tensor.strides, rank) } {
        Some(strides) => (strides, None),
        None => fill_strides(shape),
    };
    let checked = check(tensor, dtype, flags, shape, strides);
    match checked {
        Ok(parts) => Ok((parts, filled)),
        Err(error) => {
            // SAFETY: made above, and the parts that borrowed them are gone.
            unsafe { free_strides(filled) };
            Err(error)
        }
    }
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

#[cold]
fn fill_strides<'a>(shape: &[i64]) -> (&'a [i64], FilledStrides) {
    let mut strides = vec![0; shape.len()].into_boxed_slice();
    layout::compact_strides(shape, &mut strides);
    let strides = NonNull::from(Box::leak(strides));
    // SAFETY: leaked just now, and kept by the caller as long as `'a`.
    (unsafe { strides.as_ref() }, Some(strides))
}

/// # Safety
///
/// The strides came from [`parse`] and nobody borrows them any more.
pub(super) unsafe fn free_strides(filled: FilledStrides) {
    if let Some(strides) = filled {
        // SAFETY: leaked from a box by `fill_strides`, freed once by the caller's duty.
        drop(unsafe { Box::from_raw(strides.as_ptr()) });
    }
}

#[inline(always)]
fn check<'a>(
    tensor: &DLTensor,
    dtype: DType,
    flags: Flags,
    shape: &'a [i64],
    strides: &'a [i64],
) -> Result<Parts<'a>, Error> {
    let device = Device::new(DeviceKind(tensor.device.device_type.0), tensor.device.device_id);
    let span = layout::span(shape, strides)?;
    let data = tensor.data.cast::<u8>();
    let parts = |data, byte_offset, access| Parts {
        data,
        byte_offset,
        dtype,
        device,
        flags,
        access,
        shape,
        strides,
        len: span.len,
    };
    if span.len == 0 {
        // No element will be read: whatever the pointer is, it is only carried.
        return Ok(parts(data, 0, class(flags)));
    }
    if data.is_null() {
        return Err(Error::NullData { len: span.len });
    }
    let unit = Unit::new(dtype, flags);
    // Broadcast axes make more elements than there are places, gaps more places than elements.
    if unit.size(span.len.max(span.extent())).is_none() {
        return Err(too_large(unit, span));
    }
    // Each is a part of the extent, so it fits.
    let size = |count: usize| unit.size(count).unwrap_or(0);
    let (below, above) = (size(span.low.unsigned_abs()), size(span.high.unsigned_abs() + 1));
    if !device.kind.has_addresses() {
        return Ok(parts(data, tensor.byte_offset, Access::Shared));
    }
    let out_of_space = || Error::AddressOverflow { byte_offset: tensor.byte_offset };
    let offset = usize::try_from(tensor.byte_offset).map_err(|_| out_of_space())?;
    let origin = data.addr().checked_add(offset).ok_or_else(out_of_space)?;
    if origin.checked_sub(below).is_none() || origin.checked_add(above).is_none() {
        return Err(out_of_space());
    }
    Ok(parts(data.wrapping_add(offset), 0, class(flags)))
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
