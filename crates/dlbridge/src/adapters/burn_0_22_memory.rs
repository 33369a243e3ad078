//! Where Burn's bytes lie, and bytes over tensors. Burn writes to a tensor's memory only if no other
//! code has it.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::slice;

use burn_std::{
    AccessError, AccessPolicy, AllocationController, AllocationProperty, Bytes, Reader, Writer,
};

use crate::layout::Placement;
use crate::memory::Handle;
use crate::memory::owner::export_within;
use crate::{Access, Error, Flags, Tensor};

/// The largest alignment that Burn knows.
const MOST_ALIGNED: usize = align_of::<u128>();

/// Exports bytes that lie in host memory: writable if these are their only holder.
pub(crate) fn export_bytes(mut bytes: Bytes, placement: &Placement<'_>) -> Result<Handle, Error> {
    let writer = || Writer::new().no_copy();
    if bytes.write(writer()).is_ok() {
        // SAFETY: bytes that have no other holder, in host memory (R4).
        return unsafe {
            export_within(bytes, placement, Flags::NONE, Access::Exclusive, |bytes| {
                let borrowed = bytes.write(writer()).unwrap_or_default();
                (borrowed.as_mut_ptr(), borrowed.len())
            })
        };
    }
    check_resident(&bytes)?;
    export_shared_bytes(bytes, placement, |bytes| bytes)
}

/// Refuses bytes that Burn would have to fetch.
pub(crate) fn check_resident(bytes: &Bytes) -> Result<(), Error> {
    let found = match bytes.read(Reader::new().no_copy()) {
        Ok(_) => return Ok(()),
        Err(AccessError::WouldCopy) => "bytes of a file or a device".to_owned(),
        Err(AccessError::Read(message)) => message,
    };
    Err(Error::NotConvertible { what: "bytes", found, expected: "bytes in host memory" })
}

/// Exports bytes that `owner` holds and never writes, read-only.
pub(crate) fn export_shared_bytes<O: Send + 'static>(
    owner: O,
    placement: &Placement<'_>,
    bytes: impl FnOnce(&O) -> &Bytes,
) -> Result<Handle, Error> {
    // SAFETY: bytes that Burn copies before it writes, as long as the owner holds them (R4).
    unsafe {
        export_within(owner, placement, Flags::READ_ONLY, Access::Frozen, |owner| {
            let borrowed = bytes(owner).read(Reader::new().no_copy()).unwrap_or_default();
            (borrowed.as_ptr().cast_mut(), borrowed.len())
        })
    }
}

/// The contiguous elements as bytes that keep the tensor alive. Exclusive memory is written where it
/// is; frozen memory is copied before it is written, as Burn does with bytes that are shared.
pub(crate) fn bytes(tensor: Tensor) -> Result<Bytes, Error> {
    let checked = tensor.checked();
    checked.check_host()?;
    checked.check_unwritten()?;
    checked.check_contiguous()?;
    let (access, size) = (checked.access(), checked.nbytes());
    if size == 0 {
        // Aligned for every type, though there are no elements.
        return Ok(Bytes::from_elems(Vec::<u128>::new()));
    }
    let memory = Box::new(Kept { tensor, size });
    // SAFETY: a tensor's elements are initialised (T3, or a Rust owner's), all `size` bytes.
    let bytes = unsafe { Bytes::from_controller(memory, size) };
    Ok(if access == Access::Exclusive { bytes } else { bytes.shared() })
}

/// A tensor that Burn holds: host memory, contiguous, not shared with another language.
struct Kept {
    tensor: Tensor,
    size: usize,
}

impl AllocationController for Kept {
    fn alloc_align(&self) -> usize {
        let address = self.tensor.checked().data().addr();
        MOST_ALIGNED.min(1 << address.trailing_zeros())
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Other
    }

    fn capacity(&self) -> usize {
        self.size
    }

    fn memory(&self, _: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        let data = self.tensor.checked().data().cast();
        // SAFETY: host memory of `size` contiguous bytes (R1), alive as long as the tensor (R2),
        // written only through `&mut self` (R4).
        Ok(unsafe { slice::from_raw_parts(data, self.size) })
    }

    unsafe fn memory_mut(
        &mut self,
        _: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        let checked = self.tensor.checked();
        if checked.check_exclusive().is_err() {
            // Never asked for: Burn shares such bytes, and copies them first.
            return Err(AccessError::WouldCopy);
        }
        let data = checked.data().cast();
        // SAFETY: as in `memory`; the tensor is borrowed mutably, and no other code has its elements
        // (R4). That they stay initialised is the caller's duty.
        Ok(unsafe { slice::from_raw_parts_mut(data, self.size) })
    }
}
