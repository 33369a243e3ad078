//! The one gate: a raw descriptor goes in, and passes, or the reason why not comes out.
//! Ownership does not belong here (see `managed`): the gate neither frees nor keeps anything.
//! Invariant: what it lets through satisfies R1, whatever the descriptor's fields were.

use std::ptr::NonNull;
use std::slice;

use dlbridge_sys::DLTensor;

use super::marks::Marks;
use super::parts::{Checked, device, dtype};
use crate::layout::{self, Span, Unit};
use crate::{Access, DType, Error, Flags, MAX_RANK, small};

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
    // SAFETY: the caller's duty.
    match unsafe { parse_ordinary(tensor, flags) } {
        Some(checked) => Ok(checked),
        // SAFETY: the same.
        None => unsafe { parse_any(tensor, flags) },
    }
}

/// Checks a descriptor as nearly all are: elements of whole bytes at an address, explicit strides,
/// no byte offset, nothing negative, numbers that are [small]. `None` says only that it is
/// another.
///
/// Short, since it stands in every import; [`parse_any`] would say the same of what this lets
/// through.
///
/// # Safety
///
/// As for [`parse`].
#[inline(always)]
unsafe fn parse_ordinary(tensor: &DLTensor, flags: Flags) -> Option<Checked> {
    // A negative rank is a large one.
    let rank = tensor.ndim as u32 as usize;
    let is_ordinary = rank <= small::RANK
        && dtype(tensor).is_ordinary()
        && tensor.byte_offset == 0
        && device(tensor).kind.has_addresses()
        && small::holds_address(tensor.data.addr());
    if !is_ordinary {
        return None;
    }
    // SAFETY: the caller's duty: `rank` is `ndim`, which is not negative.
    let shape = unsafe { list(tensor.shape, rank) }?;
    // SAFETY: the same.
    let strides = unsafe { list(tensor.strides, rank) }?;
    let marks = Marks::new(flags, class(flags));
    let checked = Checked { strides: NonNull::from(strides).cast(), marks };
    small::holds(shape, strides).then_some(checked)
}

/// Checks any descriptor, and says what is wrong with one that is refused.
///
/// # Safety
///
/// As for [`parse`].
#[cold]
#[inline(never)]
unsafe fn parse_any(tensor: &DLTensor, flags: Flags) -> Result<Checked, Error> {
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
        let access = check(tensor, unit, flags, shape, strides)?;
        let (strides, marks) = (NonNull::from(strides).cast(), Marks::new(flags, access));
        return Ok(Checked { strides, marks });
    }
    fill_strides(tensor, unit, flags, shape)
}

/// What an element takes, if there can be one of this type.
fn unit(dtype: DType, flags: Flags) -> Result<Unit, Error> {
    match dtype.impossible() {
        Some(reason) => Err(Error::ImpossibleDType { dtype, reason }),
        None => Ok(Unit::new(dtype, flags)),
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

/// Makes the strides of a compact tensor, which is what null strides mean.
fn fill_strides(
    tensor: &DLTensor,
    unit: Unit,
    flags: Flags,
    shape: &[i64],
) -> Result<Checked, Error> {
    let mut strides = vec![0; shape.len()].into_boxed_slice();
    layout::compact_strides(shape, &mut strides);
    let access = check(tensor, unit, flags, shape, &strides)?;
    let strides = NonNull::from(Box::leak(strides)).cast();
    Ok(Checked { strides, marks: Marks::new(flags, access).with_own_strides() })
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

/// The class of the elements' memory.
fn check(
    tensor: &DLTensor,
    unit: Unit,
    flags: Flags,
    shape: &[i64],
    strides: &[i64],
) -> Result<Access, Error> {
    let span = layout::span(shape, strides)?;
    if span.len == 0 {
        return Ok(class(flags));
    }
    if tensor.data.is_null() {
        return Err(Error::NullData { len: span.len });
    }
    let Some((below, above)) = unit.reach(span) else { return Err(too_large(unit, span)) };
    if !device(tensor).kind.has_addresses() {
        return Ok(Access::Shared);
    }
    let offset = usize::try_from(tensor.byte_offset).ok();
    let origin = offset.and_then(|offset| tensor.data.addr().checked_add(offset));
    match origin {
        // No element lies at null, either.
        Some(at) if at > below && at.checked_add(above).is_some() => Ok(class(flags)),
        _ => Err(Error::AddressOverflow { byte_offset: tensor.byte_offset }),
    }
}

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

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use dlbridge_sys::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType};
    use proptest::prelude::*;

    use super::*;

    const EDGES: [i64; 11] = [
        i64::MIN,
        i64::MIN + 1,
        -(1 << 32),
        -1,
        0,
        1,
        (1 << 18) - 1,
        (1 << 28) - 1,
        1 << 31,
        i64::MAX - 1,
        i64::MAX,
    ];

    fn number() -> impl Strategy<Value = i64> {
        prop_oneof![4 => -3..6_i64, 1 => prop::sample::select(&EDGES[..])]
    }

    fn address() -> impl Strategy<Value = usize> {
        let edges =
            prop::sample::select(vec![0, 1, 64, usize::MAX / 2, usize::MAX - 64, usize::MAX]);
        prop_oneof![3 => Just(0x1000), 1 => edges]
    }

    proptest! {
        /// The short way lets nothing through that the whole gate refuses, says the same of what it
        /// does let through, and is the way of everything that it is meant for.
        #[test]
        fn both_ways_agree(
            (shape, strides) in (0..4_usize).prop_flat_map(|rank| {
                (prop::collection::vec(number(), rank), prop::collection::vec(number(), rank))
            }),
            address in address(),
            (code, bits, lanes) in (0..9_u8, prop::sample::select(vec![0, 4, 8, 12, 32, 128, 255]), 0..3_u16),
            (kind, byte_offset, flags) in (0..9_i32, 0..2_u64, 0..8_u64),
            (has_shape, has_strides) in (prop::bool::weighted(0.9), prop::bool::weighted(0.9)),
        ) {
            let list = |numbers: &Vec<i64>, is_there: bool| {
                if is_there { numbers.as_ptr().cast_mut() } else { std::ptr::null_mut() }
            };
            let tensor = DLTensor {
                data: std::ptr::without_provenance_mut::<c_void>(address),
                device: DLDevice { device_type: DLDeviceType(kind), device_id: 0 },
                ndim: shape.len() as i32,
                dtype: DLDataType { code: DLDataTypeCode(code), bits, lanes },
                shape: list(&shape, has_shape),
                strides: list(&strides, has_strides),
                byte_offset,
            };
            let flags = Flags(flags);
            // SAFETY: lists of `ndim` numbers, or null (T2).
            let short = unsafe { parse_ordinary(&tensor, flags) };
            // SAFETY: the same.
            let whole = unsafe { parse_any(&tensor, flags) };
            if let Some(short) = short {
                let whole = whole.expect("let through");
                prop_assert_eq!(short.marks, whole.marks);
                prop_assert!(shape.is_empty() || short.strides == whole.strides);
            } else if let Ok(whole) = whole {
                let is_ordinary = dtype(&tensor).is_ordinary()
                    && shape.iter().chain(&strides).all(|number| (0..100).contains(number))
                    && address == 0x1000
                    && byte_offset == 0
                    && device(&tensor).kind.has_addresses()
                    && has_shape
                    && has_strides;
                prop_assert!(!is_ordinary);
                if whole.marks.owns_strides() {
                    // SAFETY: made just now, and used no more (R7).
                    unsafe { free_strides(whole.strides, shape.len()) };
                }
            }
        }
    }
}
