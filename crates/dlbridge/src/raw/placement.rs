//! Exports a chosen shape of an owner's memory, bounds checked against the owner's own slice.
//! Deciding the shape does not belong here (see `export`).
//! Invariant: what is exported lies within the slice that the owner lent.

use std::ffi::c_void;

#[cfg(feature = "image-0_25")]
use super::borrowed::Borrowed;
use super::buffer::Buffer;
use super::element::Element;
use super::layout::Layout;
use super::parts::Memory;
use super::{Handle, Plain};
use crate::layout::Span;
use crate::{Access, Builder, DType, Device, Error, Flags, Tensor};

/// What to export of an owner's memory.
pub(crate) struct Placement<'a> {
    layout: Layout<'a>,
    span: Span,
    /// Of element `[0, 0, ...]`, in elements, from the start of the memory.
    offset: usize,
}

impl<'a> Placement<'a> {
    /// Measures what is to be exported.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::measure`].
    #[inline]
    pub(crate) fn new(
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
        offset: usize,
        flags: Flags,
    ) -> Result<Self, Error> {
        let layout = Layout::measure(shape, strides, dtype, flags)?;
        Ok(Self { layout, span: layout.span(), offset })
    }

    fn rank(&self) -> usize {
        self.layout.shape().len()
    }

    /// The size in bytes of all elements.
    pub(crate) fn nbytes(&self) -> usize {
        self.layout.nbytes()
    }

    /// The byte offset of element `[0, 0, ...]` in memory of `size` bytes.
    #[inline]
    fn offset_within(&self, size: usize) -> Result<usize, Error> {
        match self.ordinary_offset_within(size) {
            Some(offset) => Ok(offset),
            None => self.any_offset_within(size),
        }
    }

    /// The same, for elements of whole bytes of which none lies in front of the first one; `None`
    /// also for elements that do not fit.
    #[inline(always)]
    fn ordinary_offset_within(&self, size: usize) -> Option<usize> {
        let Span { len, low, high } = self.span;
        let unit = self.layout.unit();
        if low != 0 || unit.is_packed() {
            return None;
        }
        // Not negative, as the upper bound of a span.
        let places = if len == 0 { 0 } else { high as usize + 1 };
        let end = unit.size(self.offset.checked_add(places)?)?;
        if end > size { None } else { unit.size(self.offset) }
    }

    /// The same, for any elements; says what does not fit.
    #[cold]
    fn any_offset_within(&self, size: usize) -> Result<usize, Error> {
        let (span, dtype) = (self.span, self.layout.dtype());
        let overflow = || Error::SizeOverflow { what: "strided span" };
        let offset = isize::try_from(self.offset).map_err(|_| overflow())?;
        let (low, high) = match span.len {
            0 => (offset, offset),
            _ => (
                offset.checked_add(span.low).ok_or_else(overflow)?,
                offset
                    .checked_add(span.high)
                    .and_then(|at| at.checked_add(1))
                    .ok_or_else(overflow)?,
            ),
        };
        let bytes = |count: isize| {
            let size = self.bytes(count.unsigned_abs())?;
            Ok(if count < 0 { -(size as isize) } else { size as isize })
        };
        let (low, high) = (bytes(low)?, bytes(high)?);
        if low < 0 || high.unsigned_abs() > size {
            return Err(Error::OutOfBounds { low, high, size });
        }
        if self.layout.unit().is_packed() && (self.offset != 0 || span.low != 0) {
            return Err(Error::PackedElements { dtype });
        }
        Ok(bytes(offset)?.unsigned_abs())
    }

    /// The size of some elements, contiguous.
    fn bytes(&self, count: usize) -> Result<usize, Error> {
        let size = self.layout.unit().size(count);
        size.ok_or(Error::SizeOverflow { what: "byte size" })
    }

    /// The chosen elements within `size` bytes from `start` on.
    fn within(
        &self,
        (start, size): (*mut u8, usize),
        device: Device,
        flags: Flags,
        access: Access,
    ) -> Result<Memory, Error> {
        let data = start.wrapping_add(self.offset_within(size)?);
        Ok(Memory { data, byte_offset: 0, device, flags, access })
    }

    /// Memory at `data`, which nothing is promised about.
    fn memory(&self, data: *mut c_void, device: Device, flags: Flags) -> Result<Memory, Error> {
        let len = self.span.len;
        if data.is_null() && len != 0 {
            return Err(Error::NullData { len });
        }
        if self.layout.unit().is_packed() && self.offset != 0 {
            return Err(Error::PackedElements { dtype: self.layout.dtype() });
        }
        let offset = self.bytes(self.offset)?;
        let (data, byte_offset) = if device.kind.has_addresses() {
            (data.cast::<u8>().wrapping_add(offset), 0)
        } else {
            (data.cast(), offset as u64)
        };
        Ok(Memory { data, byte_offset, device, flags, access: Access::Shared })
    }
}

/// Exports host memory that lies within what `memory` borrows from the owner, as `access` says,
/// from the owner's final address.
///
/// # Safety
///
/// As for [`export_on`].
pub(crate) unsafe fn export_within<O: Send + 'static>(
    owner: O,
    placement: &Placement<'_>,
    flags: Flags,
    access: Access,
    memory: impl FnOnce(&mut O) -> (*mut u8, usize),
) -> Result<Handle, Error> {
    // SAFETY: the caller's duty.
    unsafe { export_on(Device::CPU, owner, placement, flags, access, memory) }
}

/// The same for memory of another device that has addresses.
///
/// # Safety
///
/// The memory that `memory` returns is alive, initialised and of this class for as long as the
/// owner lives and is not used (R4, R10).
pub(crate) unsafe fn export_on<O: Send + 'static>(
    device: Device,
    owner: O,
    placement: &Placement<'_>,
    flags: Flags,
    access: Access,
    memory: impl FnOnce(&mut O) -> (*mut u8, usize),
) -> Result<Handle, Error> {
    // SAFETY: every element lies within the memory (R1), which the owner, which is not used again
    // before it is dropped, has lent from its final address (the caller's duty).
    unsafe {
        Handle::export(owner, placement.rank(), |owner, lists| {
            let memory = placement.within(memory(owner), device, flags, access)?;
            Ok((lists.copy(placement.layout), memory))
        })
    }
}

/// Exports memory of our own.
pub(crate) fn export_buffer(
    buffer: Buffer,
    placement: &Placement<'_>,
    flags: Flags,
) -> Result<Handle, Error> {
    // SAFETY: a buffer of this crate's own, which no other code has (R7).
    unsafe {
        export_within(buffer, placement, flags, Access::Exclusive, |buffer| {
            let bytes = buffer.as_mut();
            (bytes.as_mut_ptr(), bytes.len())
        })
    }
}

/// Exports memory that the owner lends mutably.
pub(crate) fn export_mut<O, T>(owner: O, placement: &Placement<'_>) -> Result<Handle, Error>
where
    O: AsMut<[T]> + Send + 'static,
    T: Plain,
{
    export_lent_mut(owner, placement, O::as_mut)
}

/// Exports memory that the owner lends immutably.
pub(crate) fn export_ref<O, T>(owner: O, placement: &Placement<'_>) -> Result<Handle, Error>
where
    O: AsRef<[T]> + Send + 'static,
    T: Element,
{
    export_lent(owner, placement, Lent::Unwritten, O::as_ref)
}

/// Exports memory that `lend` borrows mutably from the owner.
pub(crate) fn export_lent_mut<O, T>(
    owner: O,
    placement: &Placement<'_>,
    lend: impl FnOnce(&mut O) -> &mut [T],
) -> Result<Handle, Error>
where
    O: Send + 'static,
    T: Plain,
{
    // SAFETY: a slice that the owner lends mutably (R4).
    unsafe {
        export_within(owner, placement, Flags::NONE, Access::Exclusive, |owner| {
            let slice = lend(owner);
            (slice.as_mut_ptr().cast(), size_of_val(slice))
        })
    }
}

/// What becomes of memory that is lent as `&[T]`.
#[derive(Clone, Copy)]
pub(crate) enum Lent {
    /// Nobody writes it, as the language has it.
    Unwritten,
    /// Others may write it all the same: a mapped file.
    #[cfg_attr(not(feature = "safetensors-0_8"), expect(dead_code, reason = "for the adapters"))]
    MayBeWritten,
}

/// Exports memory that `lend` borrows from the owner, read-only.
pub(crate) fn export_lent<O, T>(
    owner: O,
    placement: &Placement<'_>,
    lent: Lent,
    lend: impl FnOnce(&O) -> &[T],
) -> Result<Handle, Error>
where
    O: Send + 'static,
    T: Element,
{
    let access = match lent {
        Lent::Unwritten => Access::Frozen,
        Lent::MayBeWritten => Access::Shared,
    };
    // SAFETY: a slice that the owner lends; another program may write a mapped file (R4).
    unsafe {
        export_within(owner, placement, Flags::READ_ONLY, access, |owner| {
            let slice = lend(owner);
            (slice.as_ptr().cast_mut().cast(), size_of_val(slice))
        })
    }
}

#[cfg(feature = "image-0_25")]
/// Describes a part of a slice that is only borrowed: read-only.
pub(crate) fn borrow_within<'a, T: Element>(
    slice: &'a [T],
    placement: &Placement<'_>,
) -> Result<Borrowed<'a>, Error> {
    let memory = (slice.as_ptr().cast_mut().cast(), size_of_val(slice));
    let memory = placement.within(memory, Device::CPU, Flags::READ_ONLY, Access::Frozen)?;
    // SAFETY: every element lies within a slice that is borrowed for as long (R1, R4).
    Ok(unsafe { Borrowed::new(placement.layout.into(), memory) })
}

#[cfg(feature = "image-0_25")]
/// Describes a part of a slice that is borrowed mutably: writable, and nobody else's meanwhile.
pub(crate) fn borrow_mut_within<'a, T: Plain>(
    slice: &'a mut [T],
    placement: &Placement<'_>,
) -> Result<Borrowed<'a>, Error> {
    let memory = (slice.as_mut_ptr().cast(), size_of_val(slice));
    let memory = placement.within(memory, Device::CPU, Flags::NONE, Access::Exclusive)?;
    // SAFETY: as above, and the borrow is unique (R1, R4).
    Ok(unsafe { Borrowed::new(placement.layout.into(), memory) })
}

impl<O: Send + 'static> Builder<O> {
    /// Exports memory that only the caller knows: of a device, or in a form that Rust has no
    /// slice for. Shape and dtype must have been chosen. The class is
    /// [`Shared`](Access::Shared), since nothing is known of who else has the memory.
    ///
    /// # Safety
    ///
    /// As long as the owner lives, wherever it is moved to, `data` is an address (or a handle) on
    /// `device` from which the chosen elements can be reached, to be read and, unless `flags` has
    /// [`READ_ONLY`](Flags::READ_ONLY), written. If they have [`IS_COPIED`](Flags::IS_COPIED),
    /// nobody else uses the elements as long. The owner may be dropped on any thread.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build), less `OutOfBounds`; [`NotChosen`](Error::NotChosen), or
    /// [`NullData`](Error::NullData) if there are elements.
    pub unsafe fn build_raw(
        self,
        data: *mut c_void,
        device: Device,
        flags: Flags,
    ) -> Result<Tensor, Error> {
        self.place_flagged(flags, |owner, placement| {
            let memory = placement.memory(data, device, flags)?;
            // SAFETY: the caller's duty.
            unsafe {
                Handle::export(owner, placement.rank(), |_, lists| {
                    Ok((lists.copy(placement.layout), memory))
                })
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TypeCode;
    use crate::layout::span;

    proptest! {
        /// What is not measured again is the same, and the short way to an offset finds the one that
        /// the whole way finds.
        #[test]
        fn short_ways_agree_with_whole_ones(
            (shape, strides) in (0..4_usize).prop_flat_map(|rank| {
                let stride = prop_oneof![9 => -2..5_i64, 1 => prop::sample::select(vec![i64::MIN, i64::MAX])];
                (prop::collection::vec(0..4_i64, rank), prop::collection::vec(stride, rank))
            }),
            bits in prop::sample::select(vec![4, 8, 32]),
            (offset, size) in (prop_oneof![9 => 0..8_usize, 1 => Just(usize::MAX)], 0..80_usize),
        ) {
            let dtype = DType { code: TypeCode::UINT, bits, lanes: 1 };
            let placement = Placement::new(dtype, &shape, &strides, offset, Flags::NONE);
            if let Ok(placement) = placement {
                prop_assert_eq!(placement.span, span(&shape, &strides)?);
                let whole = placement.any_offset_within(size).ok();
                match placement.ordinary_offset_within(size) {
                    Some(offset) => prop_assert_eq!(whole, Some(offset)),
                    None => prop_assert!(whole.is_none() || bits < 8 || placement.span.low < 0),
                }
            }
        }
    }
}
