//! `Table`: the tensors that are borrowed now.
//! Whether two overlap belongs to `range`, and how extension modules share the table to `shared`.
//!
//! A slot is one word: the address of a descriptor and two flags. So a borrow to read costs one exchange
//! and a comparison; the bytes of a tensor are measured only when another one is to be written.
//!
//! Invariants: the address in a slot is that of a descriptor which lives until the slot is free, and a
//! slot is not freed while it is pinned. Of two slots whose bytes overlap, neither is borrowed to write,
//! except in the slot of a writer that is being checked.

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::range::Bytes;
use super::{Conflict, Kind};
use dlbridge::ffi::descriptor;
use dlbridge::sys::DLTensor;
use dlbridge::{Device, Tensor};

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

const _: () = assert!(align_of::<DLTensor>() > (WRITES | PINNED));

/// The borrows of a process.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Table {
    /// 1 while a thread checks a borrow to write, or a borrow to read while there are writers.
    lock: AtomicUsize,
    /// The number of slots that were ever used if there is no writer, otherwise 0: one comparison tells
    /// a reader that it has nothing else to do.
    quiet: AtomicUsize,
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
            lock: AtomicUsize::new(0),
            quiet: AtomicUsize::new(0),
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
    /// The borrow is released before the tensor is dropped or changed.
    #[inline]
    pub(crate) unsafe fn read(&self, tensor: &Tensor) -> Result<u32, Conflict> {
        let word = descriptor(tensor).expose_provenance();
        // Without a comparison: where `next` is behind the last slot, the first one is as good.
        let number = self.next.load(Ordering::Relaxed) % SLOTS;
        if exchange(&self.slots[number], FREE, word) {
            self.next.store(number + 1, Ordering::Relaxed);
            // The exchange is sequentially consistent: either this load finds that a writer is being
            // checked, or that writer finds the slot.
            if number < self.quiet.load(Ordering::SeqCst) {
                return Ok(number as u32);
            }
            return self.read_beside_writers(Some(number), tensor);
        }
        self.read_beside_writers(self.search(word), tensor)
    }

    #[cold]
    fn read_beside_writers(&self, number: Option<usize>, tensor: &Tensor) -> Result<u32, Conflict> {
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
            let Some(bytes) = measure(tensor) else { return Ok(number) };
            let is_written =
                self.any(|other, kind, _| kind == Kind::Write && other.overlaps(&bytes));
            match (is_written, number) {
                (false, _) => return Ok(number),
                (true, WITHOUT_SLOT) => self.release_without_slot(),
                (true, _) => self.free_locked(number),
            }
            Err(Conflict::Borrowed(Kind::Write))
        })
    }

    /// Borrows a tensor's memory to write, and returns the number of the borrow; `None` if there are no
    /// elements in memory of the host.
    ///
    /// # Safety
    ///
    /// As for [`read`](Self::read).
    pub(crate) unsafe fn write(&self, tensor: &Tensor) -> Result<Option<u32>, Conflict> {
        let Some(bytes) = measure(tensor) else { return Ok(None) };
        let word = descriptor(tensor).expose_provenance() | WRITES;
        self.locked(|| {
            self.add_writers(1);
            self.quiet.store(0, Ordering::SeqCst);
            let number = self.search(word);
            let mut conflict = match number {
                Some(number) => {
                    self.note_used(number);
                    None
                }
                None => Some(Conflict::TooMany),
            };
            if self.without_slot.load(Ordering::SeqCst) != 0 {
                conflict = Some(Conflict::TooMany);
            }
            self.any(|other, kind, at| {
                let is_other = Some(at) != number && other.overlaps(&bytes);
                if is_other {
                    conflict = Some(Conflict::Borrowed(kind));
                }
                is_other
            });
            let Some(conflict) = conflict else { return Ok(number.map(|number| number as u32)) };
            if let Some(number) = number {
                self.free_locked(number as u32);
            }
            self.end_writer();
            Err(conflict)
        })
    }

    /// Ends a borrow to read that has a slot, on any thread.
    #[inline]
    pub(crate) fn release_read(&self, number: u32, tensor: &Tensor) {
        self.free(number, descriptor(tensor).addr());
    }

    pub(crate) fn release_without_slot(&self) {
        self.without_slot.fetch_sub(1, Ordering::SeqCst);
    }

    /// Ends a borrow to write, on any thread.
    pub(crate) fn release_write(&self, number: u32, tensor: &Tensor) {
        self.free(number, descriptor(tensor).addr() | WRITES);
        self.locked(|| self.end_writer());
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
        self.slots[number as usize].store(FREE, Ordering::SeqCst);
    }

    /// Called under the lock, which orders all that only its holders access.
    fn end_writer(&self) {
        if self.add_writers(-1) == 0 {
            self.quiet.store(self.used.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Called under the lock.
    fn add_writers(&self, more: isize) -> usize {
        let writers = self.writers.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.writers.store(writers, Ordering::Relaxed);
        writers
    }

    /// Called under the lock.
    fn note_used(&self, number: usize) {
        let used = self.used.load(Ordering::Relaxed).max(number + 1);
        self.used.store(used, Ordering::Relaxed);
        if self.writers.load(Ordering::Relaxed) == 0 {
            self.quiet.store(used, Ordering::Release);
        }
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

    /// Whether `function` is true of a borrow of memory. Called under the lock.
    fn any(&self, mut function: impl FnMut(Bytes, Kind, usize) -> bool) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.slots[..used].iter().enumerate().any(|(number, slot)| {
            let Some(word) = pin(slot) else { return false };
            let at = ptr::with_exposed_provenance::<DLTensor>(word & !(WRITES | PINNED));
            // SAFETY: the descriptor of a tensor that lives while the slot is pinned (F11), and
            // which does not change (T1).
            let bytes = unsafe { measure_raw(at) };
            slot.fetch_and(!PINNED, Ordering::Release);
            let kind = if word & WRITES == 0 { Kind::Read } else { Kind::Write };
            bytes.is_some_and(|bytes| function(bytes, kind, number))
        })
    }

    /// Runs a function of a few hundred instructions, which does not lock, under the lock.
    pub(super) fn locked<R>(&self, function: impl FnOnce() -> R) -> R {
        while !exchange(&self.lock, 0, 1) {
            thread::yield_now();
        }
        let result = function();
        self.free_the_lock();
        result
    }

    pub(super) fn free_the_lock(&self) {
        self.lock.store(0, Ordering::Release);
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

/// The bytes of a tensor in memory that the host can access; `None` without elements.
fn measure(tensor: &Tensor) -> Option<Bytes> {
    // SAFETY: the descriptor of a tensor, which lives meanwhile (R2).
    unsafe { measure_raw(descriptor(tensor)) }
}

/// The bytes of a descriptor.
///
/// # Safety
///
/// It is the descriptor of a live [`Tensor`]: validated, with explicit strides.
unsafe fn measure_raw(tensor: *const DLTensor) -> Option<Bytes> {
    // SAFETY: alive (the caller's duty).
    let tensor = unsafe { &*tensor };
    if !Device::from(tensor.device).is_host_accessible() {
        return None;
    }
    let rank = tensor.ndim as usize;
    let list = |numbers: *const i64| {
        // SAFETY: `ndim` numbers, since the descriptor was validated (R1, T2).
        if rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(numbers, rank) } }
    };
    let start = tensor.data.addr().wrapping_add(tensor.byte_offset as usize);
    // Elements narrower than a byte count as one byte each: more than they are, never less.
    let bits = usize::from(tensor.dtype.bits) * usize::from(tensor.dtype.lanes);
    Bytes::of(start, list(tensor.shape.cast()), list(tensor.strides.cast()), bits.div_ceil(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    static TABLE: Table = Table::new();

    #[test]
    fn threads_that_a_fork_ended_leave_nothing_pinned() {
        let tensor = Tensor::from(Tensor::from(vec![1, 2, 3]).into_shared());
        TABLE.lock.store(1, Ordering::SeqCst);
        TABLE.free_the_lock();
        // SAFETY: released before the tensor is dropped (F11).
        let number = unsafe { TABLE.write(&tensor) }.expect("free").expect("elements");
        // A thread that does not exist in the child had pinned the slot.
        TABLE.slots[number as usize].fetch_or(PINNED, Ordering::SeqCst);
        TABLE.lock.store(1, Ordering::SeqCst);
        TABLE.free_the_lock();
        // SAFETY: refused, so that no slot has the tensor (F11).
        let conflict = unsafe { TABLE.read(&tensor) }.unwrap_err();
        assert_eq!(conflict, Conflict::Borrowed(Kind::Write));
        TABLE.slots[number as usize].fetch_or(PINNED, Ordering::SeqCst);
        TABLE.release_write(number, &tensor);
        // SAFETY: released before the tensor is dropped (F11).
        let number = unsafe { TABLE.read(&tensor) }.expect("free");
        TABLE.release_read(number, &tensor);
        assert!(TABLE.slots.iter().all(|slot| slot.load(Ordering::SeqCst) == FREE));
    }
}
