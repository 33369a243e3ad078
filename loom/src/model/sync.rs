//! What the table takes from `std::sync`, for loom: made at the first use, because loom's atomics have no constant value.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

pub(super) use loom::sync::atomic::fence;
use loom::sync::{Condvar, Mutex};
pub(super) use loom::thread;

loom::thread_local! {
    /// Whether the last sequentially consistent access of the thread was an exchange.
    static EXCHANGED: Cell<bool> = Cell::new(false);
}

/// loom takes sequentially consistent accesses for acquiring and releasing ones, but knows fences. The table relies on one
/// order of such accesses: an exchange, and a load that follows it on the same thread. A fence between the two says no more.
fn exchanged(ordering: Ordering) {
    if ordering == Ordering::SeqCst {
        EXCHANGED.with(|exchanged| exchanged.set(true));
    }
}

fn before_load(ordering: Ordering) -> Ordering {
    if ordering != Ordering::SeqCst {
        return ordering;
    }
    if EXCHANGED.with(|exchanged| exchanged.replace(false)) {
        fence(Ordering::SeqCst);
    }
    Ordering::Acquire
}

#[derive(Debug)]
pub(super) struct AtomicUsize {
    first: usize,
    made: OnceLock<loom::sync::atomic::AtomicUsize>,
}

impl AtomicUsize {
    pub(super) const fn new(first: usize) -> Self {
        Self { first, made: OnceLock::new() }
    }

    fn made(&self) -> &loom::sync::atomic::AtomicUsize {
        self.made.get_or_init(|| loom::sync::atomic::AtomicUsize::new(self.first))
    }

    pub(super) fn load(&self, ordering: Ordering) -> usize {
        self.made().load(before_load(ordering))
    }

    pub(super) fn store(&self, value: usize, ordering: Ordering) {
        self.made().store(value, ordering);
    }

    pub(super) fn compare_exchange(
        &self,
        current: usize,
        new: usize,
        success: Ordering,
        failure: Ordering,
    ) -> Result<usize, usize> {
        let result = self.made().compare_exchange(current, new, Ordering::AcqRel, failure);
        exchanged(success);
        result
    }
}

/// The table's lock, which a negative number locks. A thread waits for it instead of trying again: loom would follow
/// each try.
#[derive(Debug)]
pub(super) struct AtomicIsize {
    number: AtomicUsize,
    lock: OnceLock<(Mutex<bool>, Condvar)>,
}

impl AtomicIsize {
    pub(super) const fn new(first: isize) -> Self {
        Self { number: AtomicUsize::new(first as usize), lock: OnceLock::new() }
    }

    fn lock(&self) -> &(Mutex<bool>, Condvar) {
        self.lock.get_or_init(|| (Mutex::new(false), Condvar::new()))
    }

    pub(super) fn load(&self, ordering: Ordering) -> isize {
        self.number.load(ordering) as isize
    }

    /// Locks.
    pub(super) fn swap(&self, value: isize, ordering: Ordering) -> isize {
        let (is_locked, freed) = self.lock();
        let mut is_locked = is_locked.lock().expect("no panic");
        while *is_locked {
            is_locked = freed.wait(is_locked).expect("no panic");
        }
        *is_locked = true;
        drop(is_locked);
        let before = self.number.made().swap(value as usize, Ordering::AcqRel);
        exchanged(ordering);
        before as isize
    }

    /// Unlocks.
    pub(super) fn store(&self, value: isize, ordering: Ordering) {
        self.number.store(value as usize, ordering);
        let (is_locked, freed) = self.lock();
        *is_locked.lock().expect("no panic") = false;
        freed.notify_one();
    }
}
