//! Slots that are in use: filled by a loan, then sent, and maybe kept by their readers.
//! Invariant: no region of a slot is alive when its message is sent.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use dlbridge::Error;

use super::buffer::Buffer;
use super::pool::{Plan, Pool, Slot};
use super::wire::{Entry, INLINE, START};
use crate::header;
use crate::raw::{Region, Unsplit};

/// A slot that is in use. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: Option<Slot>,
    pub(super) plan: Arc<Plan>,
    pool: Pool,
    /// A reader may still have it: it is not used again.
    retired: AtomicBool,
    is_kept: OnceLock<bool>,
}

impl Held {
    pub(super) fn new(slot: Slot, pool: Pool, plan: Arc<Plan>) -> Self {
        let (slot, retired, is_kept) = (Some(slot), AtomicBool::new(false), OnceLock::new());
        Self { slot, plan, pool, retired, is_kept }
    }

    /// A copy of the values, from the file: the mapping is gone once it is sealed.
    pub(super) fn copy(&self) -> Result<Buffer, Error> {
        let mut buffer = Buffer::zeroed(self.plan.len)?;
        self.slot().file.read(START, buffer.as_mut())?;
        Ok(buffer)
    }

    /// Makes a sealed file of the slot, which is filled no more. Whether the kernel seals it: not while a child that
    /// was forked has the memory as well, nor before Linux 6.7 while a reader maps it.
    pub(super) fn keep(&self) -> bool {
        *self.is_kept.get_or_init(|| {
            let slot = self.slot();
            let entries = self.plan.entries.iter();
            let declared =
                entries.map(|entry| (entry.name.clone(), entry.dtype, entry.shape.clone()));
            let header =
                header::plan(declared.collect(), BTreeMap::new(), Some((START, slot.size)));
            let Ok((header, _)) = header else { return false };
            self.retire();
            let memory = slot.memory.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(mut memory) = memory else { return false };
            let Some(bytes) = memory.restart() else { return false };
            bytes[..START].copy_from_slice(&header);
            // What is left of earlier messages is not passed on with the file.
            let mut end = START;
            for entry in &self.plan.entries {
                bytes[end..START + entry.offset].fill(0);
                end = START + entry.offset + entry.len;
            }
            bytes[end..].fill(0);
            // Unmapped: the last way to write.
            drop(memory);
            slot.file.add_seals().is_ok()
        })
    }

    fn slot(&self) -> &Slot {
        self.slot.as_ref().expect("there until it is dropped")
    }

    pub(super) fn number(&self) -> u32 {
        self.slot().number
    }

    pub(super) fn size(&self) -> usize {
        self.slot().size
    }

    /// Whether the slot exists, asked after it was dropped.
    pub(super) fn existence(&self) -> Weak<()> {
        Arc::downgrade(&self.slot().alive)
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Uses the values of a message that travels inline.
    pub(super) fn with_values<T>(&self, work: impl FnOnce(&[u8]) -> T) -> T {
        let mut memory = self.slot().memory.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = memory.as_mut().and_then(Unsplit::restart).expect("filled, and never sealed");
        work(&bytes[START..START + self.plan.len])
    }

    /// Whether the message is so small that its values travel, and no lease.
    pub(super) fn is_inline(&self) -> bool {
        self.plan.len <= INLINE
    }

    /// The mapping of a slot that is being filled.
    fn memory(&mut self) -> Option<&mut Unsplit> {
        let memory = self.slot.as_mut()?.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        memory.as_mut()
    }

    pub(super) fn regions<T>(&mut self, part: impl Fn(Region) -> T) -> Result<Vec<T>, Error> {
        let memory = self.slot.as_mut().map(|slot| slot.memory.get_mut());
        let memory = memory.map(|memory| memory.unwrap_or_else(PoisonError::into_inner));
        let memory = memory.and_then(Option::as_mut).expect("sealed after it was sent");
        let range = |entry: &Entry| START + entry.offset..START + entry.offset + entry.len;
        self.plan.entries.iter().map(|entry| memory.split(&range(entry)).map(&part)).collect()
    }

    /// How many regions are alive.
    pub(super) fn alive(&self) -> usize {
        let memory = self.slot().memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map_or(0, Unsplit::regions)
    }
}

/// The file of the slot.
impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slot().file.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A tensor that is still alive keeps the memory, which is not used again.
        let is_free = !*self.retired.get_mut()
            && self.memory().is_some_and(|memory| memory.restart().is_some());
        let Some(slot) = self.slot.take() else { return };
        self.pool.put(slot, is_free);
    }
}
