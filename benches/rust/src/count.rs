//! An allocator that counts. Invariant: one thread measures, so nothing need be synchronised.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, counted.
pub struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);

/// How often memory was asked for so far, growing included.
pub fn allocations() -> usize {
    CALLS.load(Ordering::Relaxed)
}

fn count() {
    // A load and a store: dearer instructions would be a part of what is measured.
    CALLS.store(CALLS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's duty.
        unsafe { System.realloc(block, layout, size) }
    }
}
