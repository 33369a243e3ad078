//! What the table takes from `std::sync`, for loom: made at the first use, because loom's types have no constant value.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

pub(super) use loom::sync::MutexGuard;
pub(super) use loom::sync::atomic::fence;

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
        self.made().load(ordering)
    }

    pub(super) fn store(&self, value: usize, ordering: Ordering) {
        self.made().store(value, ordering);
    }

    pub(super) fn swap(&self, value: usize, ordering: Ordering) -> usize {
        self.made().swap(value, ordering)
    }
}

/// A pointer, as the address that it exposes: loom has no order for what a pointer leads to.
#[derive(Debug)]
pub(super) struct AtomicPtr<T>(AtomicUsize, std::marker::PhantomData<*const T>);

// SAFETY: as `std::sync::atomic::AtomicPtr`.
unsafe impl<T> Send for AtomicPtr<T> {}
// SAFETY: the same.
unsafe impl<T> Sync for AtomicPtr<T> {}

impl<T> AtomicPtr<T> {
    /// Only null pointers are constant.
    pub(super) const fn new(_null: *mut T) -> Self {
        Self(AtomicUsize::new(0), std::marker::PhantomData)
    }

    pub(super) fn load(&self, ordering: Ordering) -> *mut T {
        std::ptr::with_exposed_provenance_mut(self.0.load(ordering))
    }

    pub(super) fn store(&self, value: *mut T, ordering: Ordering) {
        self.0.store(value.expose_provenance(), ordering);
    }

    pub(super) fn compare_exchange(
        &self,
        current: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        let [current, new] = [current, new].map(|pointer| pointer.expose_provenance());
        let result = self.0.made().compare_exchange(current, new, success, failure);
        let pointer = std::ptr::with_exposed_provenance_mut;
        result.map(pointer).map_err(pointer)
    }
}

#[derive(Debug)]
pub(super) struct Mutex<T> {
    first: std::sync::Mutex<Option<T>>,
    made: OnceLock<loom::sync::Mutex<T>>,
}

impl<T> Mutex<T> {
    pub(super) const fn new(first: T) -> Self {
        Self { first: std::sync::Mutex::new(Some(first)), made: OnceLock::new() }
    }

    pub(super) fn lock(&self) -> std::sync::LockResult<MutexGuard<'_, T>> {
        let first = || self.first.lock().expect("no panic").take().expect("once");
        self.made.get_or_init(|| loom::sync::Mutex::new(first())).lock()
    }
}

pub(super) fn pause(_: usize) {
    loom::thread::yield_now();
}
