//! Exports a chosen shape over an owner's memory, with bounds checked against the owner's slice.

use std::ffi::c_void;

use crate::layout::Placement;
use crate::memory::Handle;
use crate::memory::checked::Memory;
use crate::memory::handle::header::Owns;
use crate::{Access, DescriptorError, Device, Element, Error, Flags, Plain};

impl Placement<'_> {
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

    /// Memory at `data`, unchecked but for null: its class is `Shared`. Compiled once, not for each owner.
    #[inline(never)]
    pub(crate) fn memory(
        &self,
        data: *mut c_void,
        device: Device,
        flags: Flags,
    ) -> Result<Memory, Error> {
        let len = self.span.len;
        if data.is_null() && len != 0 {
            return Err(DescriptorError::NullData { len }.into());
        }
        if self.layout.unit().is_packed() && self.offset != 0 {
            return Err(Error::SubByte { padded: false, dtype: self.layout.dtype() });
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
    // before it is dropped, has at its final address (the caller's duty).
    unsafe {
        Handle::export(owner, Owns::Anything, placement.ndim(), |owner, lists| {
            let memory = placement.within(memory(owner), device, flags, access)?;
            Ok((lists.copy(placement.layout), memory))
        })
    }
}

/// Exports memory that `borrow` borrows mutably from the owner.
pub(crate) fn export_slice_mut<O, T>(
    owner: O,
    placement: &Placement<'_>,
    borrow: impl FnOnce(&mut O) -> &mut [T],
) -> Result<Handle, Error>
where
    O: Send + 'static,
    T: Plain,
{
    // SAFETY: a slice that the owner borrows mutably (R4).
    unsafe {
        export_within(owner, placement, Flags::NONE, Access::Exclusive, |owner| {
            let slice = borrow(owner);
            (slice.as_mut_ptr().cast(), size_of_val(slice))
        })
    }
}

/// Exports memory that `borrow` borrows from the owner, read-only.
pub(crate) fn export_slice<O, T>(
    owner: O,
    placement: &Placement<'_>,
    borrow: impl FnOnce(&O) -> &[T],
) -> Result<Handle, Error>
where
    O: Send + 'static,
    T: Element,
{
    // SAFETY: a slice that the owner borrows (R4).
    unsafe {
        export_within(owner, placement, Flags::READ_ONLY, Access::Frozen, |owner| {
            let slice = borrow(owner);
            (slice.as_ptr().cast_mut().cast(), size_of_val(slice))
        })
    }
}
