//! `Slot`: the bytes of one borrow in a few words, which one thread writes while others read them.
//! Which borrows exclude each other belongs to `table`, which slot a borrow gets to `list`.
//!
//! Invariants: the thread that has the list fills a free slot; after that, only the code that has the borrow changes it.
//! The state changes with each borrow and each end, so that a reader notices when the words are those of two borrows.

use std::sync::atomic::Ordering;

use dlbridge::ffi::{Bytes, Comb};

use super::sync::{AtomicUsize, fence, pause};
use super::{Kind, Other};

/// What the low bits of a state say; those above `KEPT` count the borrows that the slot had.
const USE: usize = 3;
const FREE: usize = 0;
/// To write, by a thread that has not yet looked at other borrows.
const ASKS: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
/// The flag of bytes with gaps, which need all words.
const HAS_GAPS: usize = 4;
/// The flag of a tensor that Rust keeps after its call.
const KEPT: usize = 8;
const FLAGS: usize = USE | HAS_GAPS | KEPT;

/// One cache line.
#[repr(align(64))]
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Step and width of the two combs.
    combs: [AtomicUsize; 4],
    /// Whether a tensor that Rust keeps may have this slot for long.
    pub(super) may_stay: bool,
}

impl Slot {
    pub(super) const fn new(may_stay: bool) -> Self {
        Self {
            state: AtomicUsize::new(FREE),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            combs: [const { AtomicUsize::new(0) }; 4],
            may_stay,
        }
    }

    /// Borrows bytes, to write only once it is [`grant`](Self::grant)ed. Called by the thread that has the list, for a
    /// free slot.
    #[inline(always)]
    pub(super) fn fill(&self, bytes: &Bytes, kind: Kind) {
        let mut state = self.state.load(Ordering::Relaxed);
        state |= if kind == Kind::Read { READ } else { ASKS };
        // Each store releases the end of the borrow before: a thread that sees it finds that the state has changed.
        self.start.store(bytes.start, Ordering::Release);
        self.end.store(bytes.end, Ordering::Release);
        // Without a step, there is one tooth, from the start to the end.
        if bytes.fine.step != 0 {
            self.fill_combs(bytes);
            state |= HAS_GAPS;
        }
        self.state.store(state, Ordering::Release);
    }

    #[cold]
    fn fill_combs(&self, bytes: &Bytes) {
        let words = [bytes.fine.step, bytes.fine.width, bytes.coarse.step, bytes.coarse.width];
        for (comb, word) in self.combs.iter().zip(words) {
            comb.store(word, Ordering::Release);
        }
    }

    /// Grants a borrow to write.
    pub(super) fn grant(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state ^ ASKS ^ WRITE, Ordering::Release);
    }

    /// Says that Rust keeps the tensor, which is read.
    pub(super) fn keep(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | KEPT, Ordering::Release);
    }

    /// Ends the borrow, on any thread.
    #[inline(always)]
    pub(super) fn free(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store((state | FLAGS).wrapping_add(1), Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn is_free(&self) -> bool {
        self.state.load(Ordering::Acquire) & USE == FREE
    }

    pub(super) fn reads(&self) -> bool {
        self.state.load(Ordering::Relaxed) & USE == READ
    }

    /// The borrow in this slot, if it has some of the bytes.
    #[inline]
    pub(super) fn of(&self, bytes: &Bytes) -> Option<Seen> {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & USE == FREE {
                return None;
            }
            let kind = if state & USE == READ { Kind::Read } else { Kind::Write };
            let load = |word: &AtomicUsize| word.load(Ordering::Relaxed);
            let (start, end) = (load(&self.start), load(&self.end));
            let whole = Comb { step: 0, width: end.wrapping_sub(start) };
            let mut found = Bytes { start, end, fine: whole, coarse: whole };
            if state & HAS_GAPS != 0 {
                let [fine, width, coarse, inner] = self.combs.each_ref().map(load);
                found.fine = Comb { step: fine, width };
                found.coarse = Comb { step: coarse, width: inner };
            }
            fence(Ordering::Acquire);
            if self.state.load(Ordering::Relaxed) == state {
                let other = Other { kind, is_kept: state & KEPT != 0, bytes: found };
                return found.overlaps(bytes).then_some(Seen { state, other });
            }
        }
    }

    /// Waits until the thread that asks has its answer.
    #[cold]
    pub(super) fn wait(&self, seen: &Seen) {
        let mut tries = 0;
        while self.state.load(Ordering::Acquire) == seen.state {
            pause(tries);
            tries += 1;
        }
    }

    /// Ends a borrow that was asked for and not granted, by a thread that no longer exists.
    pub(super) fn free_if_it_asks(&self) {
        if self.state.load(Ordering::Relaxed) & USE == ASKS {
            self.free();
        }
    }
}

/// A borrow that another thread found.
pub(super) struct Seen {
    state: usize,
    pub(super) other: Other,
}

impl Seen {
    /// Whether it is to write, and not granted yet.
    pub(super) fn asks(&self) -> bool {
        self.state & USE == ASKS
    }
}
