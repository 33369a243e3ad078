//! An allocator that records what a thread allocates and frees.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Where a block starts, and its layout's size and alignment.
type Block = (usize, usize, usize);

const ROOM: usize = 64;
/// More than any machine has: refused, as the system would.
const TOO_MUCH: usize = 1 << 50;

thread_local! {
    static LEDGER: Cell<Option<Ledger>> = const { Cell::new(None) };
}

/// What one thread allocated since it began to look, without allocating itself.
#[derive(Clone, Copy)]
struct Ledger {
    allocated: usize,
    freed: usize,
    /// Frees with another layout than the block was allocated with.
    wrong: usize,
    live: [Block; ROOM],
}

impl Ledger {
    const EMPTY: Self = Self { allocated: 0, freed: 0, wrong: 0, live: [(0, 0, 0); ROOM] };

    fn allocate(&mut self, block: Block) {
        self.allocated += 1;
        if let Some(place) = self.live.iter_mut().find(|place| place.0 == 0) {
            *place = block;
        }
    }

    fn free(&mut self, block: Block) {
        self.freed += 1;
        if let Some(place) = self.live.iter_mut().find(|place| place.0 == block.0) {
            self.wrong += usize::from(*place != block);
            *place = (0, 0, 0);
        }
    }
}

struct Recorder;

fn record(at: *mut u8, layout: Layout, act: fn(&mut Ledger, Block)) {
    // A thread that is ending has no ledger any more.
    let _ = LEDGER.try_with(|cell| {
        if let Some(mut ledger) = cell.take() {
            act(&mut ledger, (at.addr(), layout.size(), layout.align()));
            cell.set(Some(ledger));
        }
    });
}

// SAFETY: everything is the system allocator's; the ledger is written beside it.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > TOO_MUCH {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's duty.
        let block = unsafe { System.alloc(layout) };
        record(block, layout, Ledger::allocate);
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        record(block, layout, Ledger::free);
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > TOO_MUCH {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's duty.
        let block = unsafe { System.alloc_zeroed(layout) };
        record(block, layout, Ledger::allocate);
        block
    }
}

#[global_allocator]
static RECORDER: Recorder = Recorder;

/// Runs something, and gives how often it allocated and freed.
#[track_caller]
pub(crate) fn counted<R>(run: impl FnOnce() -> R) -> (R, (usize, usize)) {
    LEDGER.set(Some(Ledger::EMPTY));
    let result = run();
    let ledger = LEDGER.take().expect("set above");
    assert_eq!(ledger.wrong, 0, "a block was freed with another layout than it was allocated with");
    (result, (ledger.allocated, ledger.freed))
}
