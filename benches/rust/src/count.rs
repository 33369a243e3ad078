//! An allocator that counts. Invariant: each thread has its own counts, so nothing need be
//! synchronised.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted.
pub struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread asked for memory so far, growing included, and for how many bytes.
pub fn allocations() -> (usize, usize) {
    (CALLS.get(), BYTES.get())
}

fn count(size: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + size);
}

// SAFETY: the system's allocator does the work.
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
