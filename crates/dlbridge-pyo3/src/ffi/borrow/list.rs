//! `List`: the borrows that one thread began, on cache lines that no other thread writes but to end one of them.
//! `Lists`: those of all threads, which any thread walks without a lock.
//!
//! A list grows by segments. Each knows the span of its bytes, so that a thread that looks for others skips it.
//!
//! Invariants: one thread at a time has a list, and alone begins borrows in it. As long as a slot is not free, its segment's
//! span has its bytes, and `used` is above its number. Lists and segments live as long as the process.

use std::sync::atomic::Ordering;
use std::{array, iter, ptr};

use dlbridge::ffi::Bytes;

use super::slot::Slot;
use super::sync::{AtomicPtr, AtomicUsize};
use super::{Kind, SLOTS};

#[repr(align(64))]
#[derive(Debug)]
struct Segment {
    /// The number of slots of which the last may have a borrow.
    used: AtomicUsize,
    /// The lowest and the highest address of those borrows.
    start: AtomicUsize,
    end: AtomicUsize,
    before: Option<&'static Self>,
    after: AtomicPtr<Self>,
    slots: [Slot; SLOTS],
}

/// Leaves a word alone that has this value, so that threads that read it keep its cache line. Release: a thread that leaves
/// a segment out because of this value comes after the borrows that ended before.
#[inline(always)]
fn set(word: &AtomicUsize, value: usize) {
    if word.load(Ordering::Relaxed) != value {
        word.store(value, Ordering::Release);
    }
}

/// # Safety
///
/// The pointer is null or that of a value that lives as long as the process.
#[inline(always)]
unsafe fn read<T>(pointer: &AtomicPtr<T>) -> Option<&'static T> {
    // SAFETY: the caller's duty (F6).
    unsafe { pointer.load(Ordering::Acquire).as_ref() }
}

impl Segment {
    fn new(before: Option<&'static Self>) -> Self {
        Self {
            used: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            before,
            after: AtomicPtr::new(ptr::null_mut()),
            slots: array::from_fn(|_| Slot::new(before.is_none())),
        }
    }

    #[inline(always)]
    fn after(&self) -> Option<&'static Self> {
        // SAFETY: null, or a leaked box (`after_or_new`; F9).
        unsafe { read(&self.after) }
    }

    #[cold]
    fn after_or_new(&'static self) -> &'static Self {
        self.after().unwrap_or_else(|| {
            let new = &*Box::leak(Box::new(Self::new(Some(self))));
            self.after.store(ptr::from_ref(new).cast_mut(), Ordering::Release);
            new
        })
    }

    /// The number of slots below which there may be borrows.
    #[inline(always)]
    fn trimmed(&self) -> usize {
        let mut used = self.used.load(Ordering::Relaxed);
        while used > 0 && self.slots[used - 1].is_free() {
            used -= 1;
        }
        used
    }

    /// Begins a borrow in the slot behind those that are used.
    #[inline(always)]
    fn fill(&'static self, used: usize, bytes: &Bytes, kind: Kind) -> &'static Slot {
        let (mut start, mut end) = (bytes.start, bytes.end);
        if used != 0 {
            start = start.min(self.start.load(Ordering::Relaxed));
            end = end.max(self.end.load(Ordering::Relaxed));
        }
        set(&self.start, start);
        set(&self.end, end);
        set(&self.used, used + 1);
        let slot = &self.slots[used];
        slot.fill(bytes, kind);
        slot
    }

    /// The slots that may have a borrow of some of the bytes.
    #[inline(always)]
    fn slots_near(&'static self, bytes: &Bytes) -> &'static [Slot] {
        let load = |word: &AtomicUsize| word.load(Ordering::Acquire);
        let is_near = load(&self.start) < bytes.end && bytes.start < load(&self.end);
        &self.slots[..if is_near { load(&self.used) } else { 0 }]
    }
}

#[derive(Debug)]
#[repr(align(64))]
pub(super) struct List {
    /// 1 while a thread has the list.
    is_taken: AtomicUsize,
    next: AtomicPtr<Self>,
    /// The segment of the next borrow; null for the first one.
    current: AtomicPtr<Segment>,
    first: Segment,
}

impl List {
    /// Begins a borrow. Called by the thread that has the list.
    #[inline(always)]
    pub(super) fn begin(&'static self, bytes: &Bytes, kind: Kind) -> &'static Slot {
        // SAFETY: null, or a segment, which is never freed (`move_on`; F9).
        let segment = unsafe { read(&self.current) }.unwrap_or(&self.first);
        let used = segment.trimmed();
        if used == SLOTS || (used == 0 && segment.before.is_some()) {
            return self.move_on(segment, used, bytes, kind);
        }
        segment.fill(used, bytes, kind)
    }

    /// Begins a borrow in another segment: the one before if this one is free, the one after if it is full.
    #[cold]
    fn move_on(
        &'static self,
        mut segment: &'static Segment,
        mut used: usize,
        bytes: &Bytes,
        kind: Kind,
    ) -> &'static Slot {
        while let (0, Some(before)) = (used, segment.before) {
            let used_before = before.trimmed();
            if used_before == SLOTS {
                break;
            }
            set(&segment.used, 0);
            (segment, used) = (before, used_before);
        }
        if used == SLOTS {
            (segment, used) = (segment.after_or_new(), 0);
        }
        self.current.store(ptr::from_ref(segment).cast_mut(), Ordering::Release);
        segment.fill(used, bytes, kind)
    }

    /// Whether a slot other than `mine` may have a borrow of some of `bytes`.
    #[inline(always)]
    pub(super) fn may_have(&'static self, bytes: &Bytes, mine: *const Slot) -> bool {
        let is_other = |slot: &Slot| !slot.is_free() && !ptr::eq(slot, mine);
        let mut segment = &self.first;
        loop {
            if segment.slots_near(bytes).iter().any(is_other) {
                return true;
            }
            let Some(after) = segment.after() else { return false };
            segment = after;
        }
    }

    /// What `work` finds first among the slots that may have a borrow of some of the bytes.
    pub(super) fn find<R>(
        &'static self,
        bytes: &Bytes,
        mut work: impl FnMut(&'static Slot) -> Option<R>,
    ) -> Option<R> {
        let mut segment = &self.first;
        loop {
            if let Some(found) = segment.slots_near(bytes).iter().find_map(&mut work) {
                return Some(found);
            }
            segment = segment.after()?;
        }
    }

    /// All slots that may have a borrow.
    pub(super) fn slots(&'static self) -> impl Iterator<Item = &'static Slot> {
        let segments = iter::successors(Some(&self.first), |segment| segment.after());
        segments.flat_map(|segment| &segment.slots[..segment.used.load(Ordering::Acquire)])
    }

    /// Gives the list to the next thread that takes one. The borrows in it stay.
    pub(super) fn give_back(&self) {
        self.is_taken.store(0, Ordering::Release);
    }
}

/// The lists of all threads.
#[derive(Debug)]
pub(super) struct Lists {
    last: AtomicPtr<List>,
}

impl Lists {
    pub(super) const fn new() -> Self {
        Self { last: AtomicPtr::new(ptr::null_mut()) }
    }

    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static List> {
        // SAFETY: null, or a leaked box (`take`; F9).
        iter::successors(unsafe { read(&self.last) }, |list| unsafe { read(&list.next) })
    }

    /// A list for this thread alone, until it gives it back.
    #[cold]
    pub(super) fn take(&self) -> &'static List {
        let is_free = |list: &&List| list.is_taken.swap(1, Ordering::Acquire) == 0;
        self.iter().find(is_free).unwrap_or_else(|| self.add())
    }

    fn add(&self) -> &'static List {
        let new = &*Box::leak(Box::new(List {
            is_taken: AtomicUsize::new(1),
            next: AtomicPtr::new(ptr::null_mut()),
            current: AtomicPtr::new(ptr::null_mut()),
            first: Segment::new(None),
        }));
        loop {
            let last = self.last.load(Ordering::Acquire);
            new.next.store(last, Ordering::Relaxed);
            let (to, order) = (ptr::from_ref(new).cast_mut(), Ordering::AcqRel);
            if self.last.compare_exchange(last, to, order, Ordering::Relaxed).is_ok() {
                return new;
            }
        }
    }
}
