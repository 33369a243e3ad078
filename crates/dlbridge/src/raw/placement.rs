//! Exports a chosen shape of an owner's memory, bounds checked against the owner's own slice.
//! Deciding the shape does not belong here (see `export`).
//! Invariant: what is exported lies within the slice that the owner lent.

use std::ffi::c_void;

#[cfg(feature = "image-0_25")]
use super::borrowed::Borrowed;
use super::element::Element;
use super::header::Memory;
use super::{Handle, Plain};
use crate::layout::{self, Span, Unit};
use crate::{Access, Builder, DType, Device, Error, Flags, Tensor};

/// What to export of an owner's memory.
pub(crate) struct Placement<'a> {
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [i64],
    pub(crate) strides: &'a [i64],
    /// Of element `[0, 0, ...]`, in elements, from the start of the memory.
    pub(crate) offset: usize,
}

impl Placement<'_> {
    fn measure(&self, flags: Flags) -> Result<Span, Error> {
        if let Some(reason) = self.dtype.impossible() {
            return Err(Error::ImpossibleDType { dtype: self.dtype, reason });
        }
        let span = layout::span(self.shape, self.strides)?;
        layout::nbytes(span.len, self.dtype, flags)?;
        Ok(span)
    }

    /// The byte offset of element `[0, 0, ...]` in memory of `size` bytes.
    fn offset_within(&self, span: Span, size: usize) -> Result<usize, Error> {
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
            let size = layout::nbytes(count.unsigned_abs(), self.dtype, Flags::NONE)?;
            Ok(if count < 0 { -(size as isize) } else { size as isize })
        };
        let (low, high) = (bytes(low)?, bytes(high)?);
        if low < 0 || high.unsigned_abs() > size {
            return Err(Error::OutOfBounds { low, high, size });
        }
        if self.dtype.itemsize().is_none() && (self.offset != 0 || span.low != 0) {
            return Err(Error::PackedElements { dtype: self.dtype });
        }
        Ok(bytes(offset)?.unsigned_abs())
    }

    fn write(&self, shape: &mut [i64], strides: &mut [i64]) {
        shape.copy_from_slice(self.shape);
        strides.copy_from_slice(self.strides);
    }

    /// The chosen elements within `size` bytes from `start` on.
    fn within(
        &self,
        (start, size): (*mut u8, usize),
        device: Device,
        span: Span,
        flags: Flags,
        access: Access,
    ) -> Result<Memory, Error> {
        let data = start.wrapping_add(self.offset_within(span, size)?);
        Ok(Memory { data, byte_offset: 0, dtype: self.dtype, device, flags, access })
    }

    /// Memory at `data`, which nothing is promised about.
    fn memory(&self, data: *mut c_void, device: Device, flags: Flags) -> Result<Memory, Error> {
        let span = self.measure(flags)?;
        let (len, dtype) = (span.len, self.dtype);
        if data.is_null() && len != 0 {
            return Err(Error::NullData { len });
        }
        if len != 0 && Unit::new(dtype, flags).reach(span).is_none() {
            return Err(Error::SizeOverflow { what: "strided span" });
        }
        let packed = dtype.itemsize().is_none() && !flags.contains(Flags::SUBBYTE_PADDED);
        if packed && self.offset != 0 {
            return Err(Error::PackedElements { dtype });
        }
        let offset = layout::nbytes(self.offset, dtype, flags)?;
        let (data, byte_offset) = if device.kind.has_addresses() {
            (data.cast::<u8>().wrapping_add(offset), 0)
        } else {
            (data.cast(), offset as u64)
        };
        Ok(Memory { data, byte_offset, dtype, device, flags, access: Access::Shared })
    }
}

/// Exports host memory that lies within what `memory` borrows from the owner, as `access` says,
/// from the owner's final address.
pub(super) fn export_within<O: Send + 'static>(
    owner: O,
    placement: &Placement<'_>,
    flags: Flags,
    access: Access,
    memory: impl FnOnce(&mut O) -> (*mut u8, usize),
) -> Result<Handle, Error> {
    export_on(Device::CPU, owner, placement, flags, access, memory)
}

/// The same for memory of another device that has addresses.
pub(super) fn export_on<O: Send + 'static>(
    device: Device,
    owner: O,
    placement: &Placement<'_>,
    flags: Flags,
    access: Access,
    memory: impl FnOnce(&mut O) -> (*mut u8, usize),
) -> Result<Handle, Error> {
    let span = placement.measure(Flags::NONE)?;
    let describe = |owner: &mut O, shape: &mut [i64], strides: &mut [i64]| {
        let memory = placement.within(memory(owner), device, span, flags, access)?;
        placement.write(shape, strides);
        Ok(memory)
    };
    // SAFETY: every element lies within a slice that the owner, which is not used again before it
    // is dropped, has lent from its final address; measured above. Its class is the borrow's (R1,
    // R4).
    unsafe { Handle::export(owner, placement.shape.len(), describe) }
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
    export_within(owner, placement, Flags::NONE, Access::Exclusive, |owner| {
        let slice = lend(owner);
        (slice.as_mut_ptr().cast(), size_of_val(slice))
    })
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
    export_within(owner, placement, Flags::READ_ONLY, access, |owner| {
        let slice = lend(owner);
        (slice.as_ptr().cast_mut().cast(), size_of_val(slice))
    })
}

#[cfg(feature = "image-0_25")]
/// Describes a part of a slice that is only borrowed: read-only.
pub(crate) fn borrow_within<'a, T: Element>(
    slice: &'a [T],
    placement: &Placement<'_>,
) -> Result<Borrowed<'a>, Error> {
    let memory = (slice.as_ptr().cast_mut().cast(), size_of_val(slice));
    let span = placement.measure(Flags::NONE)?;
    let memory = placement.within(memory, Device::CPU, span, Flags::READ_ONLY, Access::Frozen)?;
    // SAFETY: every element lies within a slice that is borrowed for as long; measured above (R1,
    // R4).
    Ok(unsafe { Borrowed::new(memory, placement.shape.len(), |a, b| placement.write(a, b)) })
}

#[cfg(feature = "image-0_25")]
/// Describes a part of a slice that is borrowed mutably: writable, and nobody else's meanwhile.
pub(crate) fn borrow_mut_within<'a, T: Plain>(
    slice: &'a mut [T],
    placement: &Placement<'_>,
) -> Result<Borrowed<'a>, Error> {
    let memory = (slice.as_mut_ptr().cast(), size_of_val(slice));
    let span = placement.measure(Flags::NONE)?;
    let memory = placement.within(memory, Device::CPU, span, Flags::NONE, Access::Exclusive)?;
    // SAFETY: as above, and the borrow is unique (R1, R4).
    Ok(unsafe { Borrowed::new(memory, placement.shape.len(), |a, b| placement.write(a, b)) })
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
        self.place(|owner, placement| {
            let memory = placement.memory(data, device, flags)?;
            let describe = |_: &mut O, shape: &mut [i64], strides: &mut [i64]| {
                placement.write(shape, strides);
                Ok(memory)
            };
            // SAFETY: measured by `memory`; the rest is the caller's duty.
            unsafe { Handle::export(owner, placement.shape.len(), describe) }
        })
    }
}
