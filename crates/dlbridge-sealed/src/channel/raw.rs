//! The slots of another process, mapped to be read.
//! Invariant: memory that another process writes is `Shared` (R4): no reference to it exists.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::{DType, Device, Error, Flags, Tensor};
use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::SealFlags;

use crate::raw::{check_pages, check_seals, system};

/// What keeps the size and the pages of a slot as they are, although its maker writes to it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// A slot of the other end.
#[derive(Debug)]
pub(super) struct PeerSlot {
    map: MmapRaw,
    /// Whether writes stay in this process, as copies of pages.
    is_private: bool,
    is_leased: AtomicBool,
}

impl PeerSlot {
    /// Maps a slot whose size and pages the kernel keeps (F10).
    pub(super) fn open(file: &OwnedFd, is_private: bool) -> Result<Self, Error> {
        check_seals(file, SEALS)?;
        let (size, _) = check_pages(file)?;
        let mut options = MmapOptions::new();
        let options = options.len(size);
        let map = if is_private {
            // SAFETY: no reference to these bytes is made (R4).
            unsafe { options.map_copy(file) }.map(MmapRaw::from)
        } else {
            options.map_raw_read_only(file)
        };
        let map = map.map_err(|error| system("mmap", error))?;
        Ok(Self { map, is_private, is_leased: AtomicBool::new(false) })
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Leases the slot, unless it is leased.
    pub(super) fn lease(&self) -> bool {
        if self.is_leased.swap(true, Ordering::Acquire) {
            return false;
        }
        // Pages that the reader wrote to are copies with the values of an earlier message.
        // SAFETY: a slot that is not leased is in no tensor (R2).
        let fresh = self
            .is_private
            .then(|| unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) });
        fresh.is_none_or(|done| done.is_ok())
    }

    pub(super) fn end_lease(&self) {
        self.is_leased.store(false, Ordering::Release);
    }
}

/// The memory of a message.
#[derive(Debug)]
pub(super) enum Memory {
    Slot(Arc<PeerSlot>),
    /// A copy that came through the socket.
    Copy(Tensor),
}

impl Memory {
    /// A tensor over the bytes from `offset` on, which `owner` keeps; `len` is the size of its elements,
    /// and the caller has checked that they are inside.
    pub(super) fn tensor<O: Send + 'static>(
        &self,
        owner: O,
        dtype: DType,
        shape: &[i64],
        offset: usize,
        len: usize,
    ) -> Result<Tensor, Error> {
        let (base, size) = match self {
            Self::Slot(slot) => (slot.map.as_mut_ptr(), slot.len()),
            Self::Copy(bytes) => (bytes.data_ptr().cast(), bytes.nbytes()),
        };
        assert!(offset <= size && len <= size - offset, "a tensor lies inside its message");
        let builder = Tensor::builder(owner).dtype(dtype).shape(shape);
        let data = base.wrapping_add(offset).cast();
        // SAFETY: inside the memory (asserted), which the owner keeps (R2). Its class is `Shared`, since
        // another process may write to it (R4); size and pages stay (F10).
        unsafe { builder.build_raw(data, Device::CPU, Flags::READ_ONLY) }
    }
}
