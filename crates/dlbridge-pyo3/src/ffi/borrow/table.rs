//! `Table`: the bytes that are borrowed now.
//! How extension modules share it belongs to `shared`.
//!
//! Arguments live for a call: each has a slot, so that a borrow to read costs one exchange and a comparison. Tensors that
//! Rust keeps, which may be many, are in a tree. The table has copies of byte ranges, and no address of a descriptor.
//!
//! Invariants: of two borrows whose bytes overlap, neither is to write. A thread that borrows to read either finds
//! that the table is locked or has writers, or is found by the next writer. The tree is accessed under the lock.

use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use dlbridge::ffi::Bytes;

use super::ordered::{Node, Ordered};
use super::slot::Slot;
use super::sync::{AtomicIsize, AtomicUsize, thread};
use super::{Kind, Other, SLOTS};

/// `next`, if no slot is free.
const FULL: usize = SLOTS + 1;

/// Less than the number of any slot.
const LOCKED: isize = -1;

/// The borrows of a process.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    /// Without a writer, the number of slots that writers look at, so that a reader below it needs no check. 0 if there
    /// are writers. `LOCKED` while a thread holds the lock, which also sends readers to it.
    quiet: AtomicIsize,
    /// The number of slots of which the last may be used.
    used: AtomicUsize,
    writers: AtomicUsize,
    /// A slot that is probably free, or `FULL`.
    next: AtomicUsize,
    ordered: UnsafeCell<Ordered>,
    slots: [Slot; SLOTS],
}

// SAFETY: only a thread that holds the lock accesses `ordered`, whose nodes are bound to no thread (R9).
unsafe impl Sync for Table {}

impl Table {
    /// The layout, for [`super::shared`].
    pub(super) const LAYOUT: [usize; 7] = [
        size_of::<Self>(),
        offset_of!(Self, quiet),
        offset_of!(Self, used),
        offset_of!(Self, writers),
        offset_of!(Self, next),
        offset_of!(Self, ordered),
        offset_of!(Self, slots),
    ];

    pub(crate) const fn new() -> Self {
        Self {
            quiet: AtomicIsize::new(0),
            used: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            ordered: UnsafeCell::new(Ordered::new(SLOTS as u64)),
            slots: [Slot::NEW; SLOTS],
        }
    }

    /// Whether there are no writers, for a thread that keeps others from borrowing to write. Acquire: what earlier ones
    /// wrote happened before.
    #[allow(dead_code, reason = "only the feature `tensor-methods` asks")]
    #[inline(always)]
    pub(crate) fn has_no_writers(&self) -> bool {
        self.quiet.load(Ordering::Acquire) > 0
    }

    /// Borrows bytes to read, and returns the number of the borrow. Unless it `STAYS`, the next borrow tries
    /// the same slot.
    #[inline(always)]
    pub(crate) fn read<const STAYS: bool>(&self, bytes: &Bytes) -> Result<u64, Other> {
        let number = self.next.load(Ordering::Relaxed);
        match self.slots.get(number) {
            Some(slot) if slot.fill(bytes, Kind::Read) => {
                if STAYS {
                    self.next.store(number + 1, Ordering::Relaxed);
                }
                // The exchange is sequentially consistent: either this load finds that a writer is being
                // checked, or that writer finds the slot.
                if (number as isize) < self.quiet.load(Ordering::SeqCst) {
                    return Ok(number as u64);
                }
                self.read_beside_writers(Some(number), bytes)
            }
            _ => self.read_beside_writers(self.search(bytes, Kind::Read), bytes),
        }
    }

    #[cold]
    fn read_beside_writers(&self, number: Option<usize>, bytes: &Bytes) -> Result<u64, Other> {
        let place = number.ok_or_else(|| Node::new(bytes, Kind::Read, false));
        let result = self.locked(|ordered| {
            if let Ok(number) = place {
                self.note_used(number);
            }
            let has_writers = self.writers.load(Ordering::Relaxed) != 0;
            match (has_writers.then(|| self.find(ordered, bytes, Kind::Read)).flatten(), place) {
                (Some(writer), place) => Err((writer, place)),
                (None, Ok(number)) => Ok(number as u64),
                (None, Err(node)) => Ok(ordered.insert(node)),
            }
        });
        result.map_err(|(writer, place)| {
            if let Ok(number) = place {
                self.slots[number].free();
            }
            writer
        })
    }

    /// Borrows bytes to write, and returns the number of the borrow.
    pub(crate) fn write(&self, bytes: &Bytes) -> Result<u64, Other> {
        let result = self.locked(|ordered| {
            self.trim();
            if let Some(other) = self.find(ordered, bytes, Kind::Write) {
                return Err(Some(other));
            }
            let number = self.claim(bytes, Kind::Write).ok_or(None)?;
            self.note_used(number);
            self.add_writers(1);
            Ok(number as u64)
        });
        result.or_else(|other| other.map_or_else(|| self.write_without_slot(bytes), Err))
    }

    #[cold]
    fn write_without_slot(&self, bytes: &Bytes) -> Result<u64, Other> {
        let node = Node::new(bytes, Kind::Write, false);
        let result = self.locked(|ordered| match self.find(ordered, bytes, Kind::Write) {
            Some(other) => Err((other, node)),
            None => {
                self.add_writers(1);
                Ok(ordered.insert(node))
            }
        });
        // A refused node is freed when the lock is free again.
        result.map_err(|(other, _node)| other)
    }

    /// Borrows bytes to read that Rust keeps and exports for the first time, so that they have no writers.
    pub(crate) fn keep(&self, bytes: &Bytes) -> u64 {
        let node = Node::new(bytes, Kind::Read, true);
        self.locked(|ordered| ordered.insert(node))
    }

    /// Replaces the borrow of an argument by one of the tensor that Rust keeps of it, to read, and returns its number.
    pub(crate) fn keep_argument(&self, bytes: &Bytes, number: u64, kind: Kind) -> u64 {
        let node = Node::new(bytes, Kind::Read, true);
        let (kept, old) = self.locked(|ordered| {
            let kept = ordered.insert(node);
            (kept, self.end_locked(ordered, number, bytes.start, kind))
        });
        drop(old);
        kept
    }

    /// Ends a borrow to read for which [`is_in_slot`] is true, on any thread.
    #[inline(always)]
    pub(crate) fn end_slot<const STAYED: bool>(&self, number: u64) {
        self.slots[number as usize % SLOTS].free();
        if STAYED {
            self.next.store(number as usize, Ordering::Relaxed);
        }
    }

    /// Ends a borrow of bytes that begin at `start`, on any thread.
    #[cold]
    pub(crate) fn end(&self, number: u64, start: usize, kind: Kind) {
        let old = self.locked(|ordered| self.end_locked(ordered, number, start, kind));
        drop(old);
    }

    fn end_locked(
        &self,
        ordered: &mut Ordered,
        number: u64,
        start: usize,
        kind: Kind,
    ) -> Option<Box<Node>> {
        if kind == Kind::Write {
            self.add_writers(-1);
        }
        if !is_in_slot(number) {
            // A slot may have become free while `next` said that there is none.
            self.next.store(0, Ordering::Relaxed);
            return ordered.remove(number, start);
        }
        self.end_slot::<true>(number);
        None
    }

    /// Called under the lock, which orders all that only its holders access.
    fn add_writers(&self, more: isize) {
        let writers = self.writers.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.writers.store(writers, Ordering::Relaxed);
    }

    /// Called under the lock.
    fn note_used(&self, number: usize) {
        let used = self.used.load(Ordering::Relaxed).max(number + 1);
        self.used.store(used, Ordering::Relaxed);
    }

    /// Leaves free slots at the end out of the next searches. Called under the lock: a thread that claims one
    /// meanwhile is not below `quiet`, and so waits for the lock.
    #[inline]
    fn trim(&self) {
        let mut used = self.used.load(Ordering::Relaxed);
        while used > 0 && self.slots[used - 1].is_free() {
            used -= 1;
        }
        self.used.store(used, Ordering::Relaxed);
    }

    /// Fills a free slot, of which the next one probably is one; `None` if there is none.
    #[inline]
    fn claim(&self, bytes: &Bytes, kind: Kind) -> Option<usize> {
        let number = self.next.load(Ordering::Relaxed);
        match self.slots.get(number) {
            Some(slot) if slot.fill(bytes, kind) => {
                self.next.store(number + 1, Ordering::Relaxed);
                Some(number)
            }
            _ => self.search(bytes, kind),
        }
    }

    /// Fills a free slot; `None` if there is none.
    #[cold]
    fn search(&self, bytes: &Bytes, kind: Kind) -> Option<usize> {
        let likely = self.next.load(Ordering::Relaxed);
        if likely >= FULL {
            return None;
        }
        let mut numbers = (likely..SLOTS).chain(0..likely);
        let number = numbers.find(|&number| self.slots[number].fill(bytes, kind));
        self.next.store(number.map_or(FULL, |found| found + 1), Ordering::Relaxed);
        number
    }

    /// A borrow of some of the bytes that excludes one of this kind. Called under the lock.
    #[inline(always)]
    fn find(&self, ordered: &Ordered, bytes: &Bytes, kind: Kind) -> Option<Other> {
        let used = self.used.load(Ordering::Relaxed);
        let has_none = used == 0 && ordered.has_none(kind);
        if has_none { None } else { self.find_among(used, ordered, bytes, kind) }
    }

    fn find_among(
        &self,
        used: usize,
        ordered: &Ordered,
        bytes: &Bytes,
        kind: Kind,
    ) -> Option<Other> {
        let in_slots = self.slots[..used].iter().find_map(|slot| {
            let (other, found) = slot.borrow()?;
            let excludes = kind == Kind::Write || other == Kind::Write;
            let found = (excludes && found.overlaps(bytes)).then_some(found)?;
            Some(Other { kind: other, is_kept: false, bytes: found })
        });
        in_slots.or_else(|| if ordered.has_none(kind) { None } else { ordered.find(bytes, kind) })
    }

    /// Ends a borrow to write for which [`is_in_slot`] is true, on any thread.
    pub(crate) fn end_writer(&self, number: u64) {
        self.locked(|_| {
            self.add_writers(-1);
            self.end_slot::<true>(number);
        });
    }

    /// Runs a function of a few hundred instructions, which neither locks nor allocates, under the lock.
    pub(super) fn locked<R>(&self, function: impl FnOnce(&mut Ordered) -> R) -> R {
        self.lock();
        self.unlocking(function)
    }

    /// The same, unless another thread has the lock.
    pub(super) fn try_locked<R>(&self, function: impl FnOnce(&mut Ordered) -> R) -> Option<R> {
        self.try_lock().then(|| self.unlocking(function))
    }

    /// Called under the lock.
    fn unlocking<R>(&self, function: impl FnOnce(&mut Ordered) -> R) -> R {
        // SAFETY: no other thread has the lock, and no function under it locks again (F9).
        let result = function(unsafe { &mut *self.ordered.get() });
        self.unlock();
        result
    }

    pub(super) fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.quiet.swap(LOCKED, Ordering::SeqCst) != LOCKED
    }

    pub(super) fn unlock(&self) {
        let is_quiet = self.writers.load(Ordering::Relaxed) == 0;
        let quiet = if is_quiet { self.used.load(Ordering::Relaxed) as isize } else { 0 };
        self.quiet.store(quiet, Ordering::Release);
    }

    /// Frees what threads that a fork ended have claimed. Called under the lock, on the only thread.
    pub(super) fn free_claimed(&self) {
        self.slots.iter().for_each(Slot::free_claimed);
    }
}

/// Whether the borrow with this number has a slot.
#[inline(always)]
pub(crate) const fn is_in_slot(number: u64) -> bool {
    number < SLOTS as u64
}

// By its path, which is the same where the model of `loom/` includes this file.
#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
