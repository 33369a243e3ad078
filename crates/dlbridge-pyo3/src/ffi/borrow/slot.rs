//! `Slot`: the bytes of one borrow in a few words, which its owner writes while other threads read them.
//! Which borrows exclude each other belongs to `table`.
//!
//! Invariant: the thread that claimed a slot alone changes it until it frees it. Its state changes with each
//! claim and each release, so that a reader notices when the words are those of two borrows.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use dlbridge::ffi::{Bytes, Comb};

use super::Kind;
use super::sync::{AtomicUsize, fence, thread};

/// What the low bits of a state say; those above count the borrows that the slot had.
const USE: usize = 3;
const FREE: usize = 0;
/// Claimed, and not filled yet.
const CLAIMED: usize = 1;
const READ: usize = 2;
const WRITE: usize = 3;
/// The flag of bytes with gaps, which need all words.
const HAS_GAPS: usize = 4;

/// One cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Step and width of the two combs.
    combs: [AtomicUsize; 4],
}

impl Slot {
    /// The layout, for [`super::shared`].
    pub(super) const LAYOUT: [usize; 5] = [
        size_of::<Self>(),
        offset_of!(Self, state),
        offset_of!(Self, start),
        offset_of!(Self, end),
        offset_of!(Self, combs),
    ];

    #[allow(clippy::declare_interior_mutable_const, reason = "the initial value of each slot")]
    pub(super) const NEW: Self = Self {
        state: AtomicUsize::new(FREE),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        combs: [const { AtomicUsize::new(0) }; 4],
    };

    /// Claims a free slot for a borrow, and fills it. The exchange is sequentially consistent.
    #[inline(always)]
    pub(super) fn fill(&self, bytes: &Bytes, kind: Kind) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        let (expected, claimed) = (Ordering::SeqCst, state | CLAIMED);
        if state & USE != FREE
            || self.state.compare_exchange(state, claimed, expected, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // Each store releases the claim: a thread that sees it finds that the state has changed.
        self.start.store(bytes.start, Ordering::Release);
        self.end.store(bytes.end, Ordering::Release);
        let mut state = state | if kind == Kind::Read { READ } else { WRITE };
        // Without a step, there is one tooth, from the start to the end.
        if bytes.fine.step != 0 {
            self.fill_combs(bytes);
            state |= HAS_GAPS;
        }
        self.state.store(state, Ordering::Release);
        true
    }

    #[cold]
    fn fill_combs(&self, bytes: &Bytes) {
        let words = [bytes.fine.step, bytes.fine.width, bytes.coarse.step, bytes.coarse.width];
        for (comb, word) in self.combs.iter().zip(words) {
            comb.store(word, Ordering::Release);
        }
    }

    /// Ends the borrow of the thread that has the slot.
    #[inline(always)]
    pub(super) fn free(&self) {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store((state | USE | HAS_GAPS).wrapping_add(1), Ordering::Release);
    }

    /// Frees a slot that a thread which no longer exists has claimed and not filled.
    pub(super) fn free_claimed(&self) {
        if self.state.load(Ordering::Relaxed) & USE == CLAIMED {
            self.free();
        }
    }

    pub(super) fn is_free(&self) -> bool {
        self.state.load(Ordering::SeqCst) & USE == FREE
    }

    /// The borrow in this slot. Waits a few instructions for a thread that is filling it.
    #[inline]
    pub(super) fn borrow(&self) -> Option<(Kind, Bytes)> {
        loop {
            let state = self.state.load(Ordering::SeqCst);
            let kind = match state & USE {
                FREE => return None,
                READ => Kind::Read,
                WRITE => Kind::Write,
                _ => {
                    thread::yield_now();
                    continue;
                }
            };
            let load = |word: &AtomicUsize| word.load(Ordering::Relaxed);
            let (start, end) = (load(&self.start), load(&self.end));
            let whole = Comb { step: 0, width: end.wrapping_sub(start) };
            let mut bytes = Bytes { start, end, fine: whole, coarse: whole };
            if state & HAS_GAPS != 0 {
                let [fine, width, coarse, inner] = self.combs.each_ref().map(load);
                bytes.fine = Comb { step: fine, width };
                bytes.coarse = Comb { step: coarse, width: inner };
            }
            fence(Ordering::Acquire);
            if self.state.load(Ordering::Relaxed) == state {
                return Some((kind, bytes));
            }
        }
    }
}

#[cfg(test)]
impl Slot {
    pub(super) fn claim_for_test(&self) {
        self.state.fetch_or(CLAIMED, Ordering::SeqCst);
    }
}
