//! A counting allocator.
//! Invariant: each thread has its own counts, so no synchronisation is needed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system allocator, with counts.
pub struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The number of allocations and reallocations of this thread so far, and their bytes.
pub fn allocations() -> (usize, usize) {
    (CALLS.get(), BYTES.get())
}

fn count(size: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + size);
}

// SAFETY: every call is forwarded to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller's duty.
        unsafe { System.realloc(block, layout, size) }
    }
}
