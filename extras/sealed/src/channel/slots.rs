//! Memory that is used again: slots of this end, filled for one message after the other, and the leases of readers.
//! Invariant: a slot is filled by one loan, or read by leases, or free; no region of it is alive when its message is sent.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dlbridge::{DType, Error};

use super::peer::SEALS;
use super::wire::{self, INLINE};
use crate::check::check_seals;
use crate::fork::Owner;
use crate::header::Entry;
use crate::memfd::{NewFile, Region, Unsplit};
use crate::{lock, refused};

/// The most slots of a pool, each of which is a mapping here and in each reader: a process has 65,530 mappings.
pub(super) const MOST_SLOTS: usize = 512;
const PAGE: usize = 4096;

/// The slots of a pool.
#[derive(Debug)]
pub(super) struct Slots {
    limit: usize,
    /// The process that has the slots; 0 before the first use. A forked child has a copy, whose lock may be held for ever.
    owner: Owner,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    /// The slot that was freed last is at the end: its pages are in the processor's cache.
    free: Vec<Slot>,
    /// All slots, free ones included, and their bytes.
    count: usize,
    total: usize,
    next: u32,
    /// The plan of the last message.
    last: Option<Arc<Plan>>,
}

/// The tensors of a message, and their places in a slot.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) entries: Vec<Entry>,
    /// The entries as bytes of a frame, and the size of the values.
    pub(super) description: Vec<u8>,
    pub(super) len: usize,
    /// The size of its slot.
    size: usize,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) number: u32,
    size: usize,
    file: NewFile,
    memory: Mutex<Unsplit>,
    /// Shows a writer that the slot exists.
    pub(super) alive: Arc<()>,
}

impl Slots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, owner: Owner::default(), state: Mutex::default() }
    }

    pub(super) fn nbytes(&self) -> usize {
        self.state().map_or(0, |state| state.total)
    }

    /// Whether another process has the slots, so that a lock may be held for ever.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.owner.is_elsewhere()
    }

    /// How many slots have messages or loans.
    pub(super) fn in_use(&self) -> usize {
        self.state().map_or(0, |state| state.count - state.free.len())
    }

    /// The plan of a message: that of the last one if the tensors are the same.
    pub(super) fn plan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Arc<Plan>, Error> {
        let is_same = |plan: &Arc<Plan>| {
            let found = plan.entries.iter();
            found.map(|it| (&*it.name, it.dtype, &*it.shape)).eq(tensors.iter().copied())
        };
        let last = self.state()?.last.clone();
        if let Some(plan) = last.filter(is_same) {
            return Ok(plan);
        }
        let (entries, description, len) = wire::plan(tensors)?;
        let size = class(len).filter(|&size| size <= self.limit);
        let size = size.ok_or_else(|| wire::too_large(self.limit, len))?;
        let plan = Arc::new(Plan { entries, description, len, size });
        self.state()?.last = Some(Arc::clone(&plan));
        Ok(plan)
    }

    /// A slot that was used before; `None` if none is free.
    pub(super) fn reuse(self: &Arc<Self>, plan: &Arc<Plan>) -> Result<Option<UsedSlot>, Error> {
        let slot = self.state()?.free(plan.size);
        Ok(slot.map(|slot| UsedSlot::new(slot, self, plan)))
    }

    /// A slot for a message; `None` if none is free and the limits permit no new one.
    pub(super) fn take(self: &Arc<Self>, plan: &Arc<Plan>) -> Result<Option<UsedSlot>, Error> {
        let size = plan.size;
        let mut state = self.state()?;
        if let Some(slot) = state.free(size) {
            return Ok(Some(UsedSlot::new(slot, self, plan)));
        }
        // Slots of other sizes make room, those that were used longest ago first.
        let mut freed = Vec::new();
        state.total = loop {
            let total = state.total.checked_add(size).filter(|&total| total <= self.limit);
            if let Some(total) = total.filter(|_| state.count < MOST_SLOTS) {
                break total;
            }
            if state.free.is_empty() {
                return Ok(None);
            }
            let slot = state.free.remove(0);
            state.forget(slot.size);
            freed.push(slot);
        };
        state.count += 1;
        state.next = state.next.wrapping_add(1);
        let number = state.next;
        drop(state);
        drop(freed);
        let slot = Slot::create(number, size).inspect_err(|_| lock(&self.state).forget(size))?;
        Ok(Some(UsedSlot::new(slot, self, plan)))
    }

    /// The slots, in the process that has them.
    fn state(&self) -> Result<MutexGuard<'_, State>, Error> {
        if self.owner.claim() {
            return Ok(lock(&self.state));
        }
        Err(refused(
            "expected the process that filled the pool, found a child that was forked later; make a channel in the child"
                .into(),
        ))
    }
}

impl State {
    /// The free slot of this size that was freed last.
    fn free(&mut self, size: usize) -> Option<Slot> {
        let at = self.free.iter().rposition(|slot| slot.size == size)?;
        Some(self.free.remove(at))
    }

    /// Counts a slot of this size no more.
    fn forget(&mut self, size: usize) {
        self.total -= size;
        self.count -= 1;
    }
}

impl Slot {
    fn create(number: u32, size: usize) -> Result<Self, Error> {
        let file = NewFile::create(size)?;
        let memory = Mutex::new(file.map()?);
        check_seals(&file, SEALS).map_err(|_| {
            refused(
                "expected Linux 5.1 or newer, found a kernel without the seal FUTURE_WRITE, which readers of a channel \
                 need; send sealed tensors"
                    .into(),
            )
        })?;
        Ok(Self { number, size, file, memory, alive: Arc::new(()) })
    }
}

/// The size of the slot for `len` bytes: a multiple of pages, at most a quarter more than needed.
fn class(len: usize) -> Option<usize> {
    let len = len.max(1);
    let unit = (len.checked_next_power_of_two()? / 8).max(PAGE);
    len.checked_next_multiple_of(unit)
}

/// A slot that is in use. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct UsedSlot {
    slot: Option<Slot>,
    pub(super) plan: Arc<Plan>,
    slots: Arc<Slots>,
    /// Whether a reader may have it for ever, so that it is not used again.
    is_retired: AtomicBool,
}

impl UsedSlot {
    fn new(slot: Slot, slots: &Arc<Slots>, plan: &Arc<Plan>) -> Self {
        let (slots, plan) = (Arc::clone(slots), Arc::clone(plan));
        Self { slot: Some(slot), plan, slots, is_retired: AtomicBool::new(false) }
    }

    pub(super) fn is_of(&self, slots: &Arc<Slots>) -> bool {
        Arc::ptr_eq(&self.slots, slots)
    }

    pub(super) fn slot(&self) -> &Slot {
        self.slot.as_ref().expect("there until it is dropped")
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.plan.entries
    }

    /// Uses the values of a message that travels inline.
    pub(super) fn with_values<T>(&self, work: impl FnOnce(&[u8]) -> T) -> T {
        let mut memory = lock(&self.slot().memory);
        work(&memory.restart().expect("no region is alive")[..self.plan.len])
    }

    /// Whether the message is so small that its values travel in the frame, without a lease.
    pub(super) fn is_inline(&self) -> bool {
        self.plan.len <= INLINE
    }

    /// The memory of each tensor, which can be taken once.
    pub(super) fn regions(&self) -> Result<Vec<Region>, Error> {
        let mut memory = lock(&self.slot().memory);
        self.entries().iter().map(|entry| memory.split(&entry.range)).collect()
    }

    /// How many regions are alive.
    pub(super) fn alive(&self) -> usize {
        lock(&self.slot().memory).regions()
    }
}

/// The file of the slot.
impl AsFd for UsedSlot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.slot().file.as_fd()
    }
}

impl Drop for UsedSlot {
    fn drop(&mut self) {
        let Some(mut slot) = self.slot.take() else { return };
        if self.slots.is_elsewhere() {
            // The memory is the parent's, and the lock may be held for ever.
            return std::mem::forget(slot);
        }
        let memory = slot.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        // A tensor that is still alive keeps the memory, which is not used again.
        if !*self.is_retired.get_mut() && memory.restart().is_some() {
            lock(&self.slots.state).free.push(slot);
        } else {
            lock(&self.slots.state).forget(slot.size);
        }
    }
}

/// The leases that the other end has. No slot is dropped with the lock.
#[derive(Default, Debug)]
pub(super) struct Given(Mutex<Leases>);

#[derive(Default, Debug)]
struct Leases {
    slots: HashMap<u64, Arc<UsedSlot>>,
    nbytes: usize,
    last: u64,
    /// Whether the stream has ended, so that leases are unknown that the other end still returns.
    is_over: bool,
}

impl Given {
    /// Leases a slot to the other end, and returns the number of the lease.
    pub(super) fn give(&self, slot: &Arc<UsedSlot>, quota: usize) -> Result<u64, Error> {
        let mut leases = lock(&self.0);
        let Leases { slots, nbytes, last, .. } = &mut *leases;
        let &Slot { number, size, .. } = slot.slot();
        let refused = |reason| Err(Error::Refused { by: "channel", reason });
        if slots.values().any(|given| given.slot().number == number) {
            return refused(
                "expected a message that the other end does not have, found one that it has".into(),
            );
        }
        if nbytes.saturating_add(size) > quota {
            return refused(format!(
                "expected a reader that keeps at most {quota} bytes, found {} messages of {nbytes} bytes that it \
                 has not returned; drop its channel, or send to it later",
                slots.len(),
            ));
        }
        *nbytes += size;
        *last += 1;
        slots.insert(*last, Arc::clone(slot));
        Ok(*last)
    }

    /// Ends a lease. `false` if there was none, although the stream goes on.
    pub(super) fn take_back(&self, lease: u64) -> bool {
        let mut leases = lock(&self.0);
        let slot = leases.slots.remove(&lease);
        leases.nbytes -= slot.as_ref().map_or(0, |slot| slot.slot().size);
        let is_over = leases.is_over;
        drop(leases);
        slot.is_some() || is_over
    }

    /// The numbers of their slots.
    pub(super) fn slots(&self) -> Vec<u32> {
        lock(&self.0).slots.values().map(|slot| slot.slot().number).collect()
    }

    /// The number of leases, and the bytes of their slots.
    pub(super) fn count(&self) -> (usize, usize) {
        let leases = lock(&self.0);
        (leases.slots.len(), leases.nbytes)
    }

    /// Ends all leases: nothing is returned any more. Messages that the other end still has keep their values, so no
    /// slot of theirs is used again.
    pub(super) fn end(&self) {
        let mut leases = lock(&self.0);
        let slots = std::mem::take(&mut leases.slots);
        (leases.nbytes, leases.is_over) = (0, true);
        drop(leases);
        slots.values().for_each(|slot| slot.is_retired.store(true, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fork::process;

    fn plan_of(slots: &Slots, size: i64) -> Arc<Plan> {
        slots.plan(&[("x", DType::U8, &[size])]).expect("below the limit")
    }

    /// What other threads are about to allocate counts, also where no machine has as much.
    #[test]
    fn a_slot_beside_as_many_bytes_as_a_number_counts_waits() {
        let slots = Arc::new(Slots::new(usize::MAX));
        let plan = plan_of(&slots, 1);
        lock(&slots.state).total = usize::MAX - PAGE + 1;
        assert!(slots.take(&plan).expect("no error").is_none());
        assert_eq!(slots.nbytes(), usize::MAX - PAGE + 1, "nothing is counted");
        lock(&slots.state).total -= PAGE;
        let taken = slots.take(&plan).expect("a page").expect("room for it");
        assert_eq!(slots.nbytes(), usize::MAX - PAGE + 1);
        drop(taken);
    }

    #[test]
    fn slots_of_other_sizes_make_room_and_those_in_use_do_not() {
        let slots = Arc::new(Slots::new(3 * PAGE));
        let (small, large) = (plan_of(&slots, 1), plan_of(&slots, 3 * PAGE as i64));
        let take = |plan| slots.take(plan).expect("memory");
        let used: Vec<_> = (0..2).map(|_| take(&small).expect("room")).collect();
        assert!(take(&large).is_none());
        assert_eq!((slots.nbytes(), slots.in_use()), (2 * PAGE, 2));
        drop(used);
        let whole = take(&large).expect("room of two free slots");
        assert_eq!((slots.nbytes(), slots.in_use()), (3 * PAGE, 1));
        assert!(take(&small).is_none());
        drop(whole);
    }

    /// A child that is forked has a lock as another thread of its parent held it.
    #[test]
    fn what_another_process_has_is_not_waited_for() {
        let slots = Slots::new(PAGE);
        slots.owner.0.store(process() + 1, Ordering::Relaxed);
        let held = lock(&slots.state);
        let asked = std::thread::scope(|scope| {
            let (sender, answer) = std::sync::mpsc::channel();
            let slots = &slots;
            scope
                .spawn(move || sender.send((slots.nbytes(), slots.in_use(), slots.is_elsewhere())));
            let answer = answer.recv_timeout(std::time::Duration::from_secs(5));
            drop(held);
            answer
        });
        assert_eq!(asked, Ok((0, 0, true)));
    }

    /// A size that the machine does not have is not counted any more once it was refused.
    #[test]
    fn what_cannot_be_allocated_is_forgotten() {
        let slots = Arc::new(Slots::new(usize::MAX));
        let plan = plan_of(&slots, isize::MAX as i64 - 4096);
        slots.take(&plan).expect_err("no machine has as much");
        assert_eq!((slots.nbytes(), slots.in_use()), (0, 0));
    }
}
