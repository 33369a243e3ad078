//! Slots that are in use: filled by a loan, then sent, and maybe kept by their readers.
//! Invariant: no region of a slot is alive when its message is sent.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use dlbridge::{Error, Tensor};

use super::Channel;
use super::pool::{Pool, Slot};
use super::wire::{self, Entry, START};
use crate::raw::{Region, Unsplit};
use crate::{header, refused};

/// A slot that is in use. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: Option<Slot>,
    entries: Vec<Entry>,
    /// The entries as they travel, and the size of their values.
    pub(super) description: Vec<u8>,
    pub(super) len: usize,
    pool: Pool,
    /// A reader may still have it: it is not used again.
    retired: AtomicBool,
    is_kept: OnceLock<bool>,
}

impl Held {
    /// Makes a sealed file of the slot, which is filled no more. Whether the kernel seals it: not while a child that
    /// was forked has the memory as well, nor before Linux 6.7 while a reader maps it.
    pub(super) fn keep(&self) -> bool {
        *self.is_kept.get_or_init(|| {
            let slot = self.slot();
            let entries = self.entries.iter();
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
            for entry in &self.entries {
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

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.slot().file.as_fd()
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
        work(&bytes[START..START + self.len])
    }

    /// Whether the message is so small that its values travel, and no lease.
    pub(super) fn is_inline(&self) -> bool {
        self.len <= wire::INLINE
    }

    /// The mapping of a slot that is being filled.
    fn memory(&mut self) -> Option<&mut Unsplit> {
        let memory = self.slot.as_mut()?.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        memory.as_mut()
    }

    fn regions(&mut self) -> Result<Vec<Option<Region>>, Error> {
        let memory = self.slot.as_mut().map(|slot| slot.memory.get_mut());
        let memory = memory.map(|memory| memory.unwrap_or_else(PoisonError::into_inner));
        let memory = memory.and_then(Option::as_mut).expect("sealed after it was sent");
        let range = |entry: &Entry| START + entry.offset..START + entry.offset + entry.len;
        self.entries.iter().map(|entry| memory.split(&range(entry)).map(Some)).collect()
    }

    /// How many regions are alive.
    fn alive(&self) -> usize {
        let memory = self.slot().memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.as_ref().map_or(0, Unsplit::regions)
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

/// Memory for the tensors of a message, to be filled and sent. Dropping it frees the memory.
#[derive(Debug)]
pub struct Loan {
    /// Dropped before the slot, which is free again if there is no region.
    regions: Vec<Option<Region>>,
    held: Held,
    channel: Option<Channel>,
}

impl Loan {
    pub(super) fn new(
        slot: Slot,
        pool: Pool,
        entries: Vec<Entry>,
        description: Vec<u8>,
        len: usize,
    ) -> Result<Self, Error> {
        let (slot, retired, is_kept) = (Some(slot), AtomicBool::new(false), OnceLock::new());
        let mut held = Held { slot, entries, description, len, pool, retired, is_kept };
        let regions = held.regions()?;
        Ok(Self { regions, held, channel: None })
    }

    /// The names of the tensors.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.held.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](dlbridge::Access::Exclusive). It has values of
    /// an earlier message until then. Dropping it leaves what was written in the message.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = self.held.entries.iter().position(|entry| entry.name == name);
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        let place = place.ok_or_else(unknown)?;
        let region = self.regions[place].take();
        let region = region.ok_or_else(|| {
            refused(format!("expected a tensor that is not taken out, found {name:?}"))
        })?;
        let entry = &self.held.entries[place];
        Tensor::builder(region).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
    }

    /// Fills a tensor with a copy of another one of its dtype and shape, of any strides and class.
    ///
    /// # Errors
    ///
    /// Another size in bytes, memory that the host cannot read, and those of [`tensor`](Self::tensor).
    pub fn copy_from(&mut self, name: &str, source: &Tensor) -> Result<(), Error> {
        let place = self.held.entries.iter().position(|entry| entry.name == name);
        let region = place.and_then(|place| self.regions[place].as_mut());
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        source.copy_to_bytes(region.ok_or_else(unknown)?.as_mut())
    }

    /// How many tensors of [`tensor`](Self::tensor) are alive: sending fails until there is none.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.held.alive() - self.regions.iter().flatten().count()
    }

    /// Ends filling: the message can be sent, by as many channels of the pool as there are.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of [`tensor`](Self::tensor) is alive. The loan is
    /// dropped then.
    pub fn ready(mut self) -> Result<Ready, Error> {
        self.regions.clear();
        let alive = self.held.alive();
        if alive > 0 {
            return Err(refused(format!(
                "expected that all tensors of the loan are dropped, found {alive} alive"
            )));
        }
        Ok(Ready(Arc::new(self.held)))
    }

    /// Sends the message by the channel that loaned it.
    ///
    /// # Errors
    ///
    /// As [`ready`](Self::ready) and [`Channel::send`]; [`Refused`](Error::Refused) for a loan of a
    /// [`Pool`], which names no channel.
    pub fn send(mut self) -> Result<(), Error> {
        let channel = self.channel.take().ok_or_else(|| {
            refused("expected a loan of a channel, found one of a pool; call ready(), then Channel::send".into())
        })?;
        channel.send(&self.ready()?)
    }

    pub(super) fn of(self, channel: Channel) -> Self {
        Self { channel: Some(channel), ..self }
    }
}

/// A message that is filled, for [`Channel::send`]. Clones are the same message.
#[derive(Clone, Debug)]
pub struct Ready(pub(super) Arc<Held>);
