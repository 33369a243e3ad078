//! Slots that are used again: memory files, mapped once, filled for one message after the other.
//! Invariant: a slot is filled by one loan, or read by leases, or free.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error, Tensor};

use super::end::{Inner, readable};
use super::wire::{self, Entry};
use super::{Channel, LIMIT};
use crate::raw::{NewFile, Region, Unsplit};
use crate::refused;

/// How long a loan waits before it looks again: another thread may have read the return of a lease.
const TICK: Duration = Duration::from_millis(5);
const PAGE: usize = 4096;

/// Memory for the messages of one channel or of several, with a limit.
///
/// A slot is used again once all its readers have dropped the tensors of its message, the slot that came back
/// last first: its pages are still in the processor's cache. Where the limit is reached, a loan waits.
///
/// All channels of a pool share its slots, so a reader can see the messages of the others. Readers that
/// do not trust each other need a pool each.
#[derive(Clone, Debug)]
pub struct Pool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    limit: usize,
    slots: Mutex<Slots>,
}

#[derive(Default, Debug)]
struct Slots {
    /// The last one came back last.
    free: Vec<Slot>,
    /// The bytes of all slots.
    total: usize,
    next: u32,
    channels: Vec<Weak<Inner>>,
    /// The process that has the slots; 0 before there is one. Its forked children have them too.
    process: u32,
}

#[derive(Debug)]
struct Slot {
    number: u32,
    size: usize,
    file: NewFile,
    memory: Unsplit,
    /// Dropped with the slot.
    alive: Arc<()>,
}

impl Default for Pool {
    /// A pool of 256 MiB at most.
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Pool {
    /// A pool of at most so many bytes. Memory is allocated when it is loaned first.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(PoolState { limit, slots: Mutex::default() }))
    }

    /// The bytes of all slots, free ones included.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.slots().total
    }

    /// Loans memory for tensors, to be sent by several channels ([`Loan::ready`]). Waits while no slot is
    /// free.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`].
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        loop {
            if let Some(loan) = self.loan_timeout(tensors, Duration::MAX)? {
                return Ok(loan);
            }
        }
    }

    /// As [`loan`](Self::loan), but waits at most so long: `None` then.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`].
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        let declared =
            tensors.iter().map(|(name, dtype, shape)| ((*name).into(), *dtype, (*shape).into()));
        let (entries, description, len) = wire::plan(declared.collect())?;
        let size = class(len).filter(|&size| size <= self.0.limit).ok_or_else(|| {
            refused(format!(
                "expected at most {} bytes, the limit of the pool, found {len}; make a larger pool",
                self.0.limit
            ))
        })?;
        let end = Instant::now().checked_add(timeout);
        loop {
            let channels = self.channels();
            for channel in &channels {
                channel.read_ready();
            }
            if let Some(slot) = self.take(size)? {
                let retired = AtomicBool::new(false);
                let mut held = Held { slot: Some(slot), pool: self.clone(), retired };
                let regions = held.regions(&entries)?;
                return Ok(Some(Loan { regions, held, entries, description, len, channel: None }));
            }
            let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let open = channels.iter().filter(|channel| channel.is_reading());
            if open.clone().count() == 0 && !channels.is_empty() {
                channels.iter().try_for_each(|channel| channel.check_inbox())?;
            }
            let sockets: Vec<_> = open.map(|channel| channel.socket()).collect();
            readable(&sockets, left.min(TICK))?;
        }
    }

    /// The channels of the pool that are alive.
    fn channels(&self) -> Vec<Arc<Inner>> {
        let mut slots = self.slots();
        slots.channels.retain(|channel| channel.strong_count() > 0);
        slots.channels.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn add(&self, channel: Weak<Inner>) {
        self.slots().channels.push(channel);
    }

    /// A free slot of this size, or a new one; `None` at the limit.
    fn take(&self, size: usize) -> Result<Option<Slot>, Error> {
        let mut slots = self.slots();
        let process = std::process::id();
        if slots.process != 0 && slots.process != process {
            return Err(refused(
                "expected the process that filled the pool, found a child that was forked later; make a \
                 channel in the child"
                    .into(),
            ));
        }
        slots.process = process;
        if let Some(at) = slots.free.iter().rposition(|slot| slot.size == size) {
            return Ok(Some(slots.free.remove(at)));
        }
        // Slots of other sizes make room, those that were used longest ago first.
        let mut freed = Vec::new();
        while slots.total + size > self.0.limit && !slots.free.is_empty() {
            let slot = slots.free.remove(0);
            slots.total -= slot.size;
            freed.push(slot);
        }
        if slots.total + size > self.0.limit {
            return Ok(None);
        }
        slots.total += size;
        slots.next = slots.next.wrapping_add(1);
        let number = slots.next;
        drop(slots);
        drop(freed);
        let make = || {
            let file = NewFile::create(size)?;
            let memory = file.map()?;
            Ok(Slot { number, size, file, memory, alive: Arc::new(()) })
        };
        make().map(Some).inspect_err(|_| self.slots().total -= size)
    }

    /// A lock that is held for a few instructions.
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The size of the slot for so many bytes: at most an eighth more.
fn class(len: usize) -> Option<usize> {
    let len = len.max(1);
    let unit = (len.checked_next_power_of_two()? / 8).max(PAGE);
    len.checked_next_multiple_of(unit)
}

/// A slot that is in use. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Held {
    slot: Option<Slot>,
    pool: Pool,
    /// A reader may still have it: it is not used again.
    retired: AtomicBool,
}

impl Held {
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
    pub(super) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.slot().alive)
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// All bytes; `None` while there is a region.
    fn bytes(&mut self) -> Option<&mut [u8]> {
        self.slot.as_mut()?.memory.restart()
    }

    fn regions(&mut self, entries: &[Entry]) -> Result<Vec<Option<Region>>, Error> {
        let memory = &mut self.slot.as_mut().expect("there until it is dropped").memory;
        let ranges = entries.iter().map(|entry| entry.offset..entry.offset + entry.len);
        ranges.map(|range| memory.split(&range).map(Some)).collect()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        // A tensor that is still alive keeps the memory, which is not used again.
        let is_free = !*self.retired.get_mut() && slot.memory.restart().is_some();
        let mut slots = self.pool.slots();
        if is_free {
            slots.free.push(slot);
        } else {
            slots.total -= slot.size;
            drop(slots);
            drop(slot);
        }
    }
}

/// Memory for the tensors of a message, to be filled and sent. Dropping it frees the memory.
#[derive(Debug)]
pub struct Loan {
    /// Dropped before the slot, which is free again if there is no region.
    regions: Vec<Option<Region>>,
    held: Held,
    entries: Vec<Entry>,
    description: Vec<u8>,
    len: usize,
    channel: Option<Channel>,
}

impl Loan {
    /// The names of the tensors.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](dlbridge::Access::Exclusive). It has values of
    /// an earlier message until then. Dropping it leaves what was written in the message.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = self.entries.iter().position(|entry| entry.name == name);
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        let place = place.ok_or_else(unknown)?;
        let region = self.regions[place].take();
        let region = region.ok_or_else(|| {
            refused(format!("expected a tensor that is not taken out, found {name:?}"))
        })?;
        let entry = &self.entries[place];
        Tensor::builder(region).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
    }

    /// Fills a tensor with a copy of another one of its dtype and shape, of any strides and class.
    ///
    /// # Errors
    ///
    /// Another size in bytes, memory that the host cannot read, and those of [`tensor`](Self::tensor).
    pub fn copy_from(&mut self, name: &str, source: &Tensor) -> Result<(), Error> {
        let place = self.entries.iter().position(|entry| entry.name == name);
        let region = place.and_then(|place| self.regions[place].as_mut());
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        source.copy_to_bytes(region.ok_or_else(unknown)?.as_mut())
    }

    /// How many tensors of [`tensor`](Self::tensor) are alive: sending fails until there is none.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.held.slot().memory.regions() - self.regions.iter().flatten().count()
    }

    /// Ends filling: the message can be sent, by as many channels of the pool as there are.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of [`tensor`](Self::tensor) is alive. The loan is
    /// dropped then.
    pub fn ready(mut self) -> Result<Ready, Error> {
        self.regions.clear();
        let alive = self.held.slot().memory.regions();
        let Some(bytes) = self.held.bytes() else {
            return Err(refused(format!(
                "expected that all tensors of the loan are dropped, found {alive} alive"
            )));
        };
        let is_inline = self.len <= wire::INLINE;
        let values = if is_inline { Arc::from(&bytes[..self.len]) } else { Arc::default() };
        let held = (!is_inline).then(|| Arc::new(self.held));
        Ok(Ready { description: self.description.into(), values, held })
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
pub struct Ready {
    pub(super) description: Arc<[u8]>,
    /// The values of a small message.
    pub(super) values: Arc<[u8]>,
    /// The slot of a large one.
    pub(super) held: Option<Arc<Held>>,
}
