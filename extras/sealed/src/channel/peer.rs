//! The slots of another process, mapped to be read.
//! Invariant: memory that another process writes is `Shared` (R4): no reference to it exists.
#![allow(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::{Device, Error, Flags, Tensor};
use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};
use rustix::fs::SealFlags;

use crate::check::{check_pages, check_seals};
use crate::fork::process;
use crate::header::Entry;
use crate::system;

/// The seals that keep the size and the pages of a slot, although its maker writes to it.
pub(super) const SEALS: SealFlags =
    SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::FUTURE_WRITE);

/// The kernel's list of the pages of a process, kept open. A child that is forked has pages of its own.
pub(super) type Pages = Option<(u64, File)>;

/// A slot of the other end.
#[derive(Debug)]
pub(super) struct PeerSlot {
    map: MmapRaw,
    /// Whether writes stay in this process, as copies of pages.
    is_private: bool,
    is_leased: AtomicBool,
}

impl PeerSlot {
    /// Maps a slot whose size and pages cannot change (F10).
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

    /// The bytes for values.
    pub(super) fn room(&self) -> usize {
        self.map.len()
    }

    /// Leases the slot, unless it is leased.
    pub(super) fn lease(&self, pages: &mut Pages) -> bool {
        if self.is_leased.swap(true, Ordering::Acquire) {
            return false;
        }
        // Pages that the reader wrote to are copies with the values of an earlier message.
        // SAFETY: a slot that is not leased is in no tensor (R2).
        let fresh = (self.is_private && self.has_copies(pages))
            .then(|| unsafe { self.map.unchecked_advise(UncheckedAdvice::DontNeed) });
        fresh.is_none_or(|done| done.is_ok())
    }

    /// Whether a page of a private mapping was written, and so is a copy. The kernel's list of pages tells; without it, true.
    /// Otherwise each lease would drop all pages, which the reader faults in again (50 us for 1 MiB).
    fn has_copies(&self, pages: &mut Pages) -> bool {
        const PAGE: usize = 4096;
        const IN_MEMORY_OR_SWAP: u64 = 3 << 62;
        const OF_FILE: u64 = 1 << 61;
        if !cfg!(target_arch = "x86_64") {
            return true;
        }
        let mut entries = vec![0; self.map.len().div_ceil(PAGE) * size_of::<u64>()];
        let start = self.map.as_ptr().addr() / PAGE * size_of::<u64>();
        let process = process();
        if pages.as_ref().is_none_or(|(owner, _)| *owner != process) {
            *pages = File::open("/proc/self/pagemap").ok().map(|list| (process, list));
        }
        let read = |(_, list): &(u64, File)| list.read_exact_at(&mut entries, start as u64);
        if pages.as_ref().map(read).is_none_or(|read| read.is_err()) {
            return true;
        }
        entries.chunks_exact(size_of::<u64>()).any(|entry| {
            let entry = entry.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
            entry & IN_MEMORY_OR_SWAP != 0 && entry & OF_FILE == 0
        })
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
    /// A tensor over the bytes of an entry, which `owner` keeps; the caller has checked that the range has the size of its
    /// elements.
    pub(super) fn tensor<O: Send + 'static>(
        &self,
        owner: O,
        entry: &Entry,
    ) -> Result<Tensor, Error> {
        let Entry { dtype, shape, range: Range { start, end }, .. } = entry;
        let (base, size) = match self {
            Self::Slot(slot) => (slot.map.as_mut_ptr(), slot.room()),
            Self::Copy(bytes) => (bytes.data_ptr().cast(), bytes.nbytes()),
        };
        assert!(start <= end && *end <= size, "a tensor lies inside its message");
        let builder = Tensor::builder(owner).dtype(*dtype).shape(shape);
        let data = base.wrapping_add(*start).cast();
        // SAFETY: inside the memory (asserted), which the owner keeps (R2). Its class is `Shared`, since
        // another process may write to it (R4); size and pages stay (F10).
        unsafe { builder.build_raw(data, Device::CPU, Flags::READ_ONLY) }
    }
}
