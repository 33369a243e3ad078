//! Slots that are used again: memory files, mapped once, filled for one message after the other.
//! Invariant: a slot is filled by one loan, or read by leases, or free.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error};

use super::LIMIT;
use super::end::{Inner, readable};
use super::held::Held;
use super::loan::Loan;
use super::raw::process;
use super::ring::{Counter, soon};
use super::wire::{self, Entry, START};
use crate::raw::{NewFile, Unsplit};
use crate::refused;

/// How long a call waits before it looks again: another thread may have read the answer.
pub(super) const TICK: Duration = Duration::from_millis(5);
/// How many loans take a free slot without a look at what readers sent.
const LOANS: u32 = 8;
const PAGE: usize = 4096;

/// Memory for the messages of one channel or of several, with a limit.
///
/// A slot is used again once all its readers have dropped its message, the one that came back last first: its pages are
/// still in the processor's cache. At the limit, a loan waits.
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
    process: u64,
    /// How many times memory was loaned.
    loans: u32,
    /// That of the last message.
    last: Option<Arc<Plan>>,
}

/// What a message consists of.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) entries: Vec<Entry>,
    /// The entries as they travel, and the size of their values.
    pub(super) description: Vec<u8>,
    pub(super) len: usize,
    /// The size of its slot.
    size: usize,
}

impl Plan {
    fn is_of(&self, tensors: &[(&str, DType, &[i64])]) -> bool {
        let found = self.entries.iter().map(|it| (it.name.as_str(), it.dtype, it.shape.as_slice()));
        found.eq(tensors.iter().copied())
    }
}

impl Slots {
    fn check_process(&mut self) -> Result<(), Error> {
        let process = process();
        if self.process != 0 && self.process != process {
            return Err(refused(
                "expected the process that filled the pool, found a child that was forked later; make a \
                 channel in the child"
                    .into(),
            ));
        }
        self.process = process;
        Ok(())
    }

    /// The free slot of this size that came back last.
    fn free(&mut self, size: usize) -> Option<Slot> {
        let at = self.free.iter().rposition(|slot| slot.size == size)?;
        Some(self.free.remove(at))
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    pub(super) size: usize,
    pub(super) file: NewFile,
    /// `None` once the file is sealed.
    pub(super) memory: Mutex<Option<Unsplit>>,
    /// Dropped with the slot.
    pub(super) alive: Arc<()>,
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

    /// Loans memory for tensors, to be sent by several channels ([`Loan::ready`]). Waits for a free slot.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`](crate::Channel::loan).
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
    /// As [`Channel::loan`](crate::Channel::loan).
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        let plan = self.plan(tensors)?;
        let size = plan.size;
        let loan = |slot| Loan::in_slot(Held::new(slot, self.clone(), plan)).map(Some);
        if let Some(slot) = self.free(size)? {
            return loan(slot);
        }
        let end = Instant::now().checked_add(timeout);
        let mut has_asked = false;
        loop {
            let channels = self.channels();
            for channel in &channels {
                channel.read_ready();
            }
            if let Some(slot) = self.take(size)? {
                return loan(slot);
            }
            let left = end.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(None);
            }
            let open: Vec<_> = channels.iter().filter(|channel| channel.is_reading()).collect();
            if open.is_empty() && !channels.is_empty() {
                channels.iter().try_for_each(|channel| channel.check_inbox())?;
            }
            // What came before it asked to be woken is looked for once more.
            if !has_asked {
                has_asked = !soon(|| open.iter().any(|channel| channel.rings.has_bytes()));
                if has_asked {
                    open.iter().for_each(|channel| channel.rings.ask(Counter::Bytes));
                }
                continue;
            }
            has_asked = false;
            let sockets: Vec<_> = open.iter().map(|channel| channel.socket()).collect();
            readable(&sockets, left.min(TICK))?;
        }
    }

    /// Where the tensors of a message are: as in the last one, if they are the same.
    fn plan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Arc<Plan>, Error> {
        let last = self.slots().last.clone();
        if let Some(plan) = last.filter(|plan| plan.is_of(tensors)) {
            return Ok(plan);
        }
        let (entries, description, len) = wire::plan(tensors)?;
        let size = class(len).and_then(|size| size.checked_add(START));
        let size = size.filter(|&size| size <= self.0.limit);
        let size = size.ok_or_else(|| wire::too_large(self.0.limit, len))?;
        let plan = Arc::new(Plan { entries, description, len, size });
        self.slots().last = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// The channels of the pool that are alive.
    fn channels(&self) -> Vec<Arc<Inner>> {
        let mut slots = self.slots();
        slots.channels.retain(|channel| channel.strong_count() > 0);
        slots.channels.iter().filter_map(Weak::upgrade).collect()
    }

    /// The most bytes of its slots.
    pub(super) fn limit(&self) -> usize {
        self.0.limit
    }

    pub(super) fn add(&self, channel: Weak<Inner>) {
        self.slots().channels.push(channel);
    }

    /// A free slot of this size, without a look at what readers returned; `None` if there is none, and now and then,
    /// because readers that ask to keep a message wait for that look.
    fn free(&self, size: usize) -> Result<Option<Slot>, Error> {
        let mut slots = self.slots();
        slots.check_process()?;
        slots.loans = slots.loans.wrapping_add(1);
        Ok(if slots.loans % LOANS == 0 { None } else { slots.free(size) })
    }

    /// A free slot of this size, or a new one; `None` at the limit.
    fn take(&self, size: usize) -> Result<Option<Slot>, Error> {
        let mut slots = self.slots();
        slots.check_process()?;
        if let Some(slot) = slots.free(size) {
            return Ok(Some(slot));
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
            let memory = Mutex::new(Some(file.map()?));
            Ok(Slot { number, size, file, memory, alive: Arc::new(()) })
        };
        make().map(Some).inspect_err(|_| self.slots().total -= size)
    }

    /// Takes a slot back, which is used again or freed.
    pub(super) fn put(&self, slot: Slot, is_free: bool) {
        let mut slots = self.slots();
        if is_free {
            slots.free.push(slot);
        } else {
            slots.total -= slot.size;
            drop(slots);
            drop(slot);
        }
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
