//! `Table`: the tensors that are borrowed now.
//! Measuring a tensor, and whether two overlap, belongs to `range`, and how extension modules share the table to `shared`.
//!
//! A slot is one word: the address of a descriptor and flags. So a borrow to read costs one exchange
//! and a comparison; the bytes of a tensor are measured only when another one is to be written.
//!
//! Invariants: the address in a slot is that of a descriptor which lives until the slot is free, and a
//! slot is not freed while it is pinned. Of two slots whose bytes overlap, neither is borrowed to write,
//! except in the slot of a writer that is being checked.

use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread;

use super::range::{measure, named};
use super::{Conflict, Kind, Other};
use dlbridge::ffi::Bytes;
use dlbridge::sys::DLTensor;

/// The number of borrows that have a slot each. The table is zeroed memory, of which the system
/// provides only the pages that are used.
const SLOTS: usize = 1 << 15;

/// The number of a borrow to read that found no free slot.
pub(crate) const WITHOUT_SLOT: u32 = SLOTS as u32;

const FREE: usize = 0;
/// The flag of a slot that is borrowed to write.
const WRITES: usize = 1;
/// The flag of a slot whose descriptor is being read.
const PINNED: usize = 2;

/// The flag of a slot of memory that Rust keeps after its call. Only the text of an error depends on it, so a
/// machine whose addresses have no third bit goes without it.
const KEPT: usize = if align_of::<DLTensor>() > 4 { 4 } else { 0 };
const FLAGS: usize = WRITES | PINNED | KEPT;

const _: () = assert!(align_of::<DLTensor>() > FLAGS);

/// Less than the number of any slot.
const LOCKED: isize = -1;

/// The borrows of a process.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    /// The number of slots that were ever used if there is no writer, otherwise 0; `LOCKED` while a thread checks a
    /// borrow to write, or a borrow to read while there are writers. One comparison tells a reader that it
    /// has nothing else to do, and one operation both locks the table and holds readers up.
    quiet: AtomicIsize,
    /// The number of slots that were ever used.
    used: AtomicUsize,
    writers: AtomicUsize,
    /// The number of borrows to read that found no free slot.
    without_slot: AtomicUsize,
    /// A slot that is probably free.
    next: AtomicUsize,
    slots: [AtomicUsize; SLOTS],
}

impl Table {
    pub(crate) const fn new() -> Self {
        const { assert!(FREE == 0) };
        Self {
            quiet: AtomicIsize::new(0),
            used: AtomicUsize::new(0),
            writers: AtomicUsize::new(0),
            without_slot: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
            slots: [const { AtomicUsize::new(FREE) }; SLOTS],
        }
    }

    /// Borrows a tensor's memory to read, and returns the number of the borrow.
    ///
    /// # Safety
    ///
    /// The descriptor of a [`Tensor`](dlbridge::Tensor): validated, with explicit strides. The borrow is
    /// released before the descriptor is freed or changed.
    #[inline]
    pub(crate) unsafe fn read(&self, tensor: *const DLTensor) -> Result<u32, Conflict> {
        // SAFETY: the caller's duty.
        unsafe { self.enter::<true>(tensor, 0) }
    }

    /// As [`read`](Self::read); unless it `STAYS`, the next borrow tries the same slot.
    ///
    /// # Safety
    ///
    /// That of [`read`](Self::read).
    #[inline(always)]
    pub(crate) unsafe fn enter<const STAYS: bool>(
        &self,
        tensor: *const DLTensor,
        flag: usize,
    ) -> Result<u32, Conflict> {
        let word = tensor.expose_provenance() | flag;
        // Without a comparison: where `next` is behind the last slot, the first one is as good.
        let number = self.next.load(Ordering::Relaxed) % SLOTS;
        if exchange(&self.slots[number], FREE, word) {
            if STAYS {
                self.next.store(number + 1, Ordering::Relaxed);
            }
            // The exchange is sequentially consistent: either this load finds that a writer is being
            // checked, or that writer finds the slot.
            if (number as isize) < self.quiet.load(Ordering::SeqCst) {
                return Ok(number as u32);
            }
            // SAFETY: the caller's duty.
            return unsafe { self.read_beside_writers(Some(number), tensor) };
        }
        // SAFETY: the same.
        unsafe { self.read_beside_writers(self.search(word), tensor) }
    }

    /// # Safety
    ///
    /// That of [`read`](Self::read).
    #[cold]
    unsafe fn read_beside_writers(
        &self,
        number: Option<usize>,
        tensor: *const DLTensor,
    ) -> Result<u32, Conflict> {
        // SAFETY: alive (the caller's duty).
        let bytes = unsafe { measure(tensor) };
        self.locked(|| {
            let number = match number {
                Some(number) => {
                    self.note_used(number);
                    number as u32
                }
                None => {
                    self.without_slot.fetch_add(1, Ordering::SeqCst);
                    WITHOUT_SLOT
                }
            };
            if self.writers.load(Ordering::Relaxed) == 0 {
                return Ok(number);
            }
            let Some(bytes) = bytes else { return Ok(number) };
            let Some(writer) = self.find(&bytes, |_, kind| kind == Kind::Write) else {
                return Ok(number);
            };
            match number {
                WITHOUT_SLOT => self.release_without_slot(),
                _ => self.free_locked(number),
            }
            Err(Conflict::Borrowed(writer))
        })
    }

    /// Notes that Rust keeps the memory of a borrow, which is then no longer that of an argument. A borrow to write
    /// becomes one to read. Returns the number of the borrow.
    pub(crate) fn keep(&self, number: u32, tensor: *const DLTensor, kind: Kind) -> u32 {
        if number != WITHOUT_SLOT {
            let (slot, address) = (&self.slots[number as usize % SLOTS], tensor.addr());
            let flag = if kind == Kind::Write { WRITES } else { 0 };
            if !exchange(slot, address | flag, address | KEPT) {
                // Pinned; by no thread that has the lock.
                self.locked(|| slot.store(address | KEPT, Ordering::SeqCst));
            }
        }
        if kind == Kind::Write {
            self.locked(|| self.add_writers(-1));
        }
        number
    }

    /// Borrows memory to read that Rust keeps and exports for the first time, so that it has no writers.
    ///
    /// # Safety
    ///
    /// That of [`read`](Self::read).
    pub(crate) unsafe fn read_kept(&self, tensor: *const DLTensor) -> u32 {
        // SAFETY: the caller's duty.
        match unsafe { self.enter::<true>(tensor, KEPT) } {
            Ok(number) => number,
            // Code that dlbridge does not know made a writer. There is no second one.
            Err(_) => {
                self.without_slot.fetch_add(1, Ordering::SeqCst);
                WITHOUT_SLOT
            }
        }
    }

    /// Ends the borrow of memory that Rust kept.
    pub(crate) fn release_kept(&self, number: u32, descriptor: usize) {
        match number {
            WITHOUT_SLOT => self.release_without_slot(),
            _ => self.free(number, descriptor | KEPT),
        }
    }

    /// Borrows a tensor's memory to write, and returns the number of the borrow. Bytes are measured only if
    /// there are other borrows: measuring takes a tenth of a call that writes a small array.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read).
    pub(crate) unsafe fn write(&self, tensor: *const DLTensor) -> Result<u32, Conflict> {
        let word = tensor.expose_provenance() | WRITES;
        self.locked(|| {
            self.add_writers(1);
            let number = self.fill(word);
            if let Some(number) = number {
                self.note_used(number);
            }
            let found = self.has_others(number).then(|| {
                // SAFETY: alive (the caller's duty).
                let bytes = unsafe { measure(tensor) }?;
                self.find(&bytes, |at, _| Some(at) != number)
            });
            let conflict = match (found.flatten(), number) {
                (Some(other), _) => Conflict::Borrowed(other),
                (None, Some(number)) if self.without_slot.load(Ordering::SeqCst) == 0 => {
                    return Ok(number as u32);
                }
                (None, _) => Conflict::TooMany,
            };
            if let Some(number) = number {
                self.free_locked(number as u32);
            }
            self.add_writers(-1);
            Err(conflict)
        })
    }

    /// Ends a borrow to read that has a slot, on any thread.
    #[inline]
    pub(crate) fn release_read(&self, number: u32, tensor: *const DLTensor) {
        self.free(number, tensor.addr());
    }

    /// Ends a borrow for a moment.
    #[inline(always)]
    pub(crate) fn release_moment(&self, number: u32, tensor: *const DLTensor) {
        if number >= WITHOUT_SLOT {
            self.release_without_slot();
        } else if !exchange(&self.slots[number as usize % SLOTS], tensor.addr(), FREE) {
            self.free_pinned(number as usize);
        }
    }

    pub(crate) fn release_without_slot(&self) {
        self.without_slot.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends a borrow to write, on any thread.
    pub(crate) fn release_write(&self, number: u32) {
        self.locked(|| {
            self.free_locked(number);
            self.add_writers(-1);
        });
        self.next.store(number as usize, Ordering::Relaxed);
    }

    #[inline]
    fn free(&self, number: u32, word: usize) {
        let number = number as usize % SLOTS;
        if !exchange(&self.slots[number], word, FREE) {
            self.free_pinned(number);
        }
        self.next.store(number, Ordering::Relaxed);
    }

    /// Frees a slot once its descriptor is no longer read.
    #[cold]
    fn free_pinned(&self, number: usize) {
        self.locked(|| self.free_locked(number as u32));
    }

    /// Frees a slot under the lock, where no other thread has pinned it.
    fn free_locked(&self, number: u32) {
        self.slots[number as usize % SLOTS].store(FREE, Ordering::Release);
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

    /// Fills a free slot, of which the next one probably is one; `None` if there is none.
    #[inline]
    fn fill(&self, word: usize) -> Option<usize> {
        let number = self.next.load(Ordering::Relaxed) % SLOTS;
        if !exchange(&self.slots[number], FREE, word) {
            return self.search(word);
        }
        self.next.store(number + 1, Ordering::Relaxed);
        Some(number)
    }

    /// Fills a free slot; `None` if there is none.
    #[cold]
    fn search(&self, word: usize) -> Option<usize> {
        let likely = self.next.load(Ordering::Relaxed).min(SLOTS);
        let mut numbers = (likely..SLOTS).chain(0..likely);
        let number = numbers.find(|&number| exchange(&self.slots[number], FREE, word))?;
        self.next.store(number + 1, Ordering::Relaxed);
        Some(number)
    }

    /// Whether a slot is borrowed, other than this one. Called under the lock.
    #[inline]
    fn has_others(&self, own: Option<usize>) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        let mut slots = self.slots[..used].iter().enumerate();
        slots.any(|(at, slot)| Some(at) != own && slot.load(Ordering::SeqCst) != FREE)
    }

    /// A borrow of some of the bytes, of those for which `filter` is true. Called under the lock.
    #[cold]
    fn find(&self, bytes: &Bytes, filter: impl Fn(usize, Kind) -> bool) -> Option<Other> {
        let used = self.used.load(Ordering::Relaxed);
        self.slots[..used].iter().enumerate().find_map(|(number, slot)| {
            let word = pin(slot)?;
            let at = ptr::with_exposed_provenance::<DLTensor>(word & !FLAGS);
            let kind = if word & WRITES == 0 { Kind::Read } else { Kind::Write };
            // SAFETY: the descriptor of a tensor that lives while the slot is pinned (F11), and
            // which does not change (T1).
            let other = filter(number, kind).then(|| unsafe { measure(at) }).flatten();
            let found = other.filter(|other| other.overlaps(bytes)).map(|other| {
                // SAFETY: the same.
                let (dtype, shape) = unsafe { named(at) };
                Other { kind, is_kept: word & KEPT != 0, dtype, shape, start: other.start }
            });
            slot.fetch_and(!PINNED, Ordering::Release);
            found
        })
    }

    /// Runs a function of a few hundred instructions, which does not lock, under the lock.
    pub(super) fn locked<R>(&self, function: impl FnOnce() -> R) -> R {
        while self.quiet.swap(LOCKED, Ordering::SeqCst) == LOCKED {
            thread::yield_now();
        }
        let result = function();
        self.free_the_lock();
        result
    }

    pub(super) fn free_the_lock(&self) {
        let is_quiet = self.writers.load(Ordering::Relaxed) == 0;
        let quiet = if is_quiet { self.used.load(Ordering::Relaxed) as isize } else { 0 };
        self.quiet.store(quiet, Ordering::Release);
    }
}

/// Replaces a slot's word, if it is the expected one.
#[inline(always)]
fn exchange(slot: &AtomicUsize, from: usize, to: usize) -> bool {
    slot.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// Keeps the descriptor of a slot alive, until the flag is cleared; `None` for a free slot.
fn pin(slot: &AtomicUsize) -> Option<usize> {
    loop {
        let word = slot.load(Ordering::SeqCst);
        if word == FREE {
            return None;
        }
        if exchange(slot, word, word | PINNED) {
            return Some(word);
        }
    }
}

#[cfg(test)]
mod tests;
