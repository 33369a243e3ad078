//! Validates a descriptor, or says why it is rejected. It neither frees nor keeps anything.
//! Invariant: every accepted descriptor satisfies R1, whatever its fields were.

use dlbridge_sys::DLTensor;

use super::checked::{self, Checked, device, dtype, memory};
use crate::layout::{self, Dims, Layout, Size, small};
use crate::{Access, DescriptorError, Error, Flags, MAX_NDIM};

/// Validates a descriptor, and returns a checked one of class [`Access::IMPORTED`]. `room` gets contiguous strides for a
/// descriptor that has none (null strides, from older producers).
///
/// # Safety
///
/// If `ndim` is positive, a `shape` or `strides` that is not null points to that many `i64` (trust
/// T2). They and the elements are alive and unchanged for `'a`.
#[inline(always)]
pub(crate) unsafe fn validate<'a>(
    tensor: &DLTensor,
    flags: Flags,
    room: &'a mut Option<Dims>,
) -> Result<Checked<'a>, Error> {
    // SAFETY: the caller's duty.
    if unsafe { is_ordinary(tensor) } {
        // SAFETY: valid, with strides; the rest is the caller's duty.
        return Ok(unsafe { Checked::described(tensor, Access::IMPORTED, flags) });
    }
    // SAFETY: the caller's duty.
    unsafe { validate_any(tensor, flags, room) }
}

/// Whether a descriptor is an ordinary one: elements of whole bytes at an address, explicit strides,
/// no byte offset, nothing negative, numbers that are [small]. [`validate_any`] accepts every such
/// descriptor.
///
/// Short, since every import inlines it.
///
/// # Safety
///
/// As for [`validate`].
#[inline(always)]
pub(crate) unsafe fn is_ordinary(tensor: &DLTensor) -> bool {
    let is_plain = dtype(tensor).is_ordinary()
        && tensor.byte_offset == 0
        && device(tensor).kind.has_addresses()
        && small::holds_address(tensor.data.addr());
    if !is_plain {
        return false;
    }
    // The usual numbers of axes, without loops.
    match checked::ndim(tensor) {
        // SAFETY: the caller's duty: this is `ndim`.
        1 => unsafe { is_small(tensor, 1) },
        // SAFETY: the same.
        2 => unsafe { is_small(tensor, 2) },
        ndim if ndim > small::NDIM => false,
        // SAFETY: the same.
        ndim => unsafe { is_small(tensor, ndim) },
    }
}

/// Whether a descriptor of this ndim has a shape and strides that are small.
///
/// # Safety
///
/// As for [`validate`].
#[inline(always)]
unsafe fn is_small(tensor: &DLTensor, ndim: usize) -> bool {
    // SAFETY: null, or `ndim` numbers (the caller's duty).
    let shape = unsafe { list(tensor.shape, ndim) };
    // SAFETY: the same.
    let strides = unsafe { list(tensor.strides, ndim) };
    let lists = shape.zip(strides);
    lists.is_some_and(|(shape, strides)| Layout::small(shape, strides, dtype(tensor)).is_some())
}

/// Validates any descriptor, and says what is wrong with one that is rejected.
///
/// # Safety
///
/// As for [`validate`].
#[cold]
#[inline(never)]
pub(crate) unsafe fn validate_any<'a>(
    tensor: &DLTensor,
    flags: Flags,
    room: &'a mut Option<Dims>,
) -> Result<Checked<'a>, Error> {
    let ndim = tensor.ndim;
    let axes = match usize::try_from(ndim) {
        Ok(axes) if axes <= MAX_NDIM => axes,
        _ => return Err(DescriptorError::NdimOutOfRange { ndim }.into()),
    };
    // SAFETY: `axes` is `ndim`, and the rest is the caller's duty.
    let Some(shape) = (unsafe { list(tensor.shape, axes) }) else {
        return Err(DescriptorError::NullShape { ndim }.into());
    };
    // SAFETY: the same.
    let strides = match unsafe { list(tensor.strides, axes) } {
        Some(strides) => strides,
        None => {
            let strides = room.insert(Dims::zeros(axes));
            layout::contiguous_strides(shape, strides);
            // Most programs in C export without strides.
            let with_strides = DLTensor { strides: strides.as_mut_ptr(), ..*tensor };
            // SAFETY: the caller's duty, with strides that live for `'a`.
            if unsafe { is_ordinary(&with_strides) } {
                // SAFETY: valid, with strides; the rest is the caller's duty.
                return Ok(unsafe { Checked::described(&with_strides, Access::IMPORTED, flags) });
            }
            strides
        }
    };
    let (layout, size) = Layout::sized(shape, strides, dtype(tensor), flags)?;
    check_addresses(tensor, size)?;
    // SAFETY: measured, and inside the address space (R1); the rest is the caller's duty.
    Ok(unsafe { Checked::new(layout, memory(tensor, Access::IMPORTED, flags)) })
}

/// A descriptor's shape or strides, if it has them.
///
/// # Safety
///
/// A pointer that is not null points to `ndim` numbers that stay for `'a`.
#[inline]
unsafe fn list<'a>(numbers: *const i64, ndim: usize) -> Option<&'a [i64]> {
    let is_there = ndim == 0 || !numbers.is_null();
    // SAFETY: not null, unless there are no axes; the rest is the caller's duty.
    is_there.then(|| unsafe { checked::list(numbers, ndim) })
}

/// Checks that every element has an address.
fn check_addresses(tensor: &DLTensor, size: Size) -> Result<(), Error> {
    let len = size.span.len;
    if len == 0 {
        return Ok(());
    }
    if tensor.data.is_null() {
        return Err(DescriptorError::NullData { len }.into());
    }
    if !device(tensor).kind.has_addresses() {
        return Ok(());
    }
    let offset = usize::try_from(tensor.byte_offset).ok();
    let origin = offset.and_then(|offset| tensor.data.addr().checked_add(offset));
    // No element is at null.
    let is_host = device(tensor).is_host_accessible();
    let lowest = if is_host { small::LOWEST_ADDRESS } else { 1 };
    match origin.map(|at| (at.checked_sub(lowest), at)) {
        // A part of a tensor without memory, such as a fake tensor of PyTorch.
        Some((None, _)) => Err(DescriptorError::NullData { len }.into()),
        Some((Some(below), at)) if below >= size.below && at.checked_add(size.above).is_some() => {
            Ok(())
        }
        _ => Err(DescriptorError::AddressOverflow { byte_offset: tensor.byte_offset }.into()),
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
        let edges = prop::sample::select(vec![
            0,
            1,
            64,
            0xffff,
            0x1_0000,
            usize::MAX / 2,
            usize::MAX - 64,
            usize::MAX,
        ]);
        prop_oneof![3 => Just(0x10_0000), 1 => edges]
    }

    proptest! {
        /// The fast path accepts only what full validation accepts, says the same of it, and takes
        /// everything that it is meant for.
        #[test]
        fn both_ways_agree(
            (shape, strides) in (0..4_usize).prop_flat_map(|ndim| {
                (prop::collection::vec(number(), ndim), prop::collection::vec(number(), ndim))
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
            let is_short = unsafe { is_ordinary(&tensor) };
            let mut added = None;
            // SAFETY: the same; no element is accessed.
            let whole = unsafe { validate_any(&tensor, flags, &mut added) }.map(|it| it.len());
            if is_short {
                whole.expect("full validation accepts it");
                prop_assert!(added.is_none());
            } else if whole.is_ok() {
                let is_ordinary = dtype(&tensor).is_ordinary()
                    && shape.iter().chain(&strides).all(|number| (0..100).contains(number))
                    && address == 0x10_0000
                    && byte_offset == 0
                    && device(&tensor).kind.has_addresses()
                    && has_shape
                    && has_strides;
                prop_assert!(!is_ordinary);
                prop_assert_eq!(added.is_some(), !has_strides && !shape.is_empty());
            }
        }
    }
}
