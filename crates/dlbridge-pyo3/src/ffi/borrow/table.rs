//! `Table`: the bytes that are borrowed now.
//! How extension modules share it belongs to `shared`.
//!
//! Each thread writes two lists of its own, one of what it reads and one of what it writes, and reads the lists of other threads. A
//! thread that asks for a borrow (1) enters it in its list, (2) passes a fence, (3) looks at the lists of other threads: to
//! write, at all of them; to read, at those of writers. If it finds no conflict, its entry stays; otherwise it takes the
//! entry back.
//!
//! # Why two borrows that exclude each other are never granted both
//!
//! All fences have one order (C++20, \[atomics.order\]). Of two borrows, let the fence of B be the later one. What A's thread
//! stored or saw before its fence, B's thread sees after its own: the list, the segment, `used`, the span and the state. All
//! of these have A's entry as long as A has not ended (`list`). So B finds A, unless A ended, or was taken back.
//!
//! B comes after an A that ended, so that its elements are read and written in that order: B finds the slot free, or a span or a
//! `used` without A, each of which was stored with release after the end of A, and is loaded with acquire.
//!
//! A borrow moves to another place at most twice, each time to one at which a writer looks later: from a list of writers to
//! one of readers, from there to the tree. It is entered there before its former place is free. So a writer that
//! finds the former place free finds the new one.
//!
//! # What happens on a tie
//!
//! - A reader and a writer that ask at once: the reader waits for the answer of the writer, which counts the reader as one.
//!   The reader is granted, the writer refused.
//! - Two writers: the one whose slot has the higher address takes its entry back, and asks again after the other one has its
//!   answer. The one with the lower address waits for that. So one is granted, the other refused.
//! - Threads never wait in a circle: a reader waits for writers, a writer only for slots at higher addresses, and it has no
//!   entry of its own while it waits for one at a lower address.
//! - A writer may be refused because of a reader that is refused itself, by a second writer, in the same moment.
//!
//! Invariants: of two borrows whose bytes overlap, neither is to write. The tree has no borrow to write.

use std::ptr;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use dlbridge::ffi::Bytes;

use super::list::{List, Lists};
use super::ordered::Ordered;
use super::slot::{Seen, Slot};
use super::sync::{AtomicUsize, Mutex, MutexGuard, fence};
use super::{Kind, Other};

/// The borrows of a process.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) reads: Lists,
    pub(super) writes: Lists,
    tree: Mutex<Ordered>,
    /// The span of the bytes in the tree.
    tree_start: AtomicUsize,
    tree_end: AtomicUsize,
}

/// Where the borrow of a tensor that Rust keeps is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    Slot(&'static Slot),
    /// In the tree, with this number.
    Tree(usize),
}

/// What a writer finds.
enum Found {
    Other(Other),
    /// A writer that asks for some of the bytes as well, and comes first.
    First(&'static Slot, Seen),
}

impl Table {
    pub(super) const fn new() -> Self {
        Self {
            reads: Lists::new(),
            writes: Lists::new(),
            tree: Mutex::new(Ordered::new()),
            tree_start: AtomicUsize::new(0),
            tree_end: AtomicUsize::new(0),
        }
    }

    /// Enters a borrow. `mine` is this thread's list of `reads`, or of `writes`. It is an error where another borrow may
    /// exclude it, of which [`answer`](Self::answer) decides.
    #[inline(always)]
    pub(super) fn begin(
        &self,
        mine: &'static List,
        bytes: &Bytes,
        kind: Kind,
    ) -> Result<&'static Slot, &'static Slot> {
        let slot = mine.begin(bytes, kind);
        fence(Ordering::SeqCst);
        // In this order, because a borrow moves in this order.
        let may_have_others = self.writes.iter().any(|list| list.may_have(bytes, slot))
            || (kind == Kind::Write
                && (self.reads.iter().any(|list| list.may_have(bytes, ptr::null()))
                    || self.tree_may_have(bytes)));
        if may_have_others {
            return Err(slot);
        }
        if kind == Kind::Write {
            slot.grant();
        }
        Ok(slot)
    }

    /// Whether a borrow that was entered is granted, or which one excludes it.
    #[cold]
    pub(super) fn answer(
        &self,
        mine: &'static List,
        slot: &'static Slot,
        bytes: &Bytes,
        kind: Kind,
    ) -> Result<&'static Slot, Other> {
        match kind {
            Kind::Read => self.answer_reader(slot, bytes),
            Kind::Write => self.answer_writer(mine, slot, bytes),
        }
    }

    fn answer_reader(&self, slot: &'static Slot, bytes: &Bytes) -> Result<&'static Slot, Other> {
        match self.find_writer(bytes, ptr::null()) {
            Some(Found::Other(other)) => {
                slot.free();
                Err(other)
            }
            // No writer comes first: the reader waited.
            None | Some(Found::First(..)) => Ok(slot),
        }
    }

    fn answer_writer(
        &self,
        mine: &'static List,
        mut slot: &'static Slot,
        bytes: &Bytes,
    ) -> Result<&'static Slot, Other> {
        loop {
            // In the order of `begin`.
            let found = self.find_writer(bytes, slot);
            let found = found.or_else(|| self.find_reader(bytes).map(Found::Other));
            match found.or_else(|| self.find_in_tree(bytes).map(Found::Other)) {
                None => {
                    slot.grant();
                    return Ok(slot);
                }
                Some(Found::Other(other)) => {
                    slot.free();
                    return Err(other);
                }
                Some(Found::First(first, seen)) => {
                    slot.free();
                    first.wait(&seen);
                    slot = mine.begin(bytes, Kind::Write);
                    fence(Ordering::SeqCst);
                }
            }
        }
    }

    /// A granted borrow to write some of the bytes, beside that of this thread in the slot `mine`.
    fn find_writer(&self, bytes: &Bytes, mine: *const Slot) -> Option<Found> {
        let answered = |slot: &'static Slot| {
            if ptr::eq(slot, mine) {
                return None;
            }
            loop {
                let seen = slot.of(bytes)?;
                if !seen.asks() {
                    return Some(Found::Other(seen.other));
                }
                if ptr::from_ref(slot) < mine {
                    return Some(Found::First(slot, seen));
                }
                slot.wait(&seen);
            }
        };
        self.writes.iter().find_map(|list| list.find(bytes, answered))
    }

    fn find_reader(&self, bytes: &Bytes) -> Option<Other> {
        let of = |slot: &'static Slot| slot.of(bytes).map(|seen| seen.other);
        self.reads.iter().find_map(|list| list.find(bytes, of))
    }

    #[inline(always)]
    fn tree_may_have(&self, bytes: &Bytes) -> bool {
        self.tree_start.load(Ordering::Acquire) < bytes.end
            && bytes.start < self.tree_end.load(Ordering::Acquire)
    }

    fn find_in_tree(&self, bytes: &Bytes) -> Option<Other> {
        let found = self.tree_may_have(bytes).then(|| self.tree().find(bytes)).flatten()?;
        Some(Other { kind: Kind::Read, is_kept: true, bytes: found })
    }

    /// Whether memory is borrowed to write, for a thread that keeps others from beginning to.
    pub(super) fn has_writers(&self) -> bool {
        self.writes.iter().any(|list| list.slots().any(|slot| !slot.is_free()))
    }

    /// Borrows bytes to read for a tensor that Rust keeps, in place of the borrow in a slot if there is one. Without it,
    /// no other code has the memory yet. `mine` is this thread's list of `reads`.
    pub(super) fn keep(
        &self,
        mine: &'static List,
        bytes: &Bytes,
        of: Option<&'static Slot>,
    ) -> Place {
        let reader = of.filter(|slot| slot.reads());
        // A reader does not move to another list: a writer may have looked there.
        let slot = reader.unwrap_or_else(|| mine.begin(bytes, Kind::Read));
        let place = if slot.may_stay {
            slot.keep();
            Place::Slot(slot)
        } else {
            let number = self.change_tree(|tree| tree.insert(bytes));
            slot.free();
            Place::Tree(number)
        };
        if let Some(writer) = of.filter(|_| reader.is_none()) {
            writer.free();
        }
        place
    }

    /// Ends the borrow of a tensor that Rust keeps, whose bytes begin at `start`, on any thread.
    pub(super) fn end_in_tree(&self, number: usize, start: usize) {
        self.change_tree(|tree| tree.remove(number, start));
    }

    fn change_tree<R>(&self, change: impl FnOnce(&mut Ordered) -> R) -> R {
        let mut tree = self.tree();
        let result = change(&mut tree);
        let (start, end) = tree.span();
        self.tree_start.store(start, Ordering::Release);
        self.tree_end.store(end, Ordering::Release);
        result
    }

    pub(super) fn tree(&self) -> MutexGuard<'_, Ordered> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a fork, on the only thread, which has the lists of which `is_mine` is true: threads that no longer exist get no
    /// answer, and give back their lists. Their borrows stay.
    pub(super) fn forget_threads(&self, is_mine: impl Fn(&List) -> bool) {
        let lists = self.reads.iter().chain(self.writes.iter());
        for list in lists.filter(|list| !is_mine(list)) {
            list.slots().for_each(Slot::free_if_it_asks);
            list.give_back();
        }
    }
}

// By its path, which is the same where the model of `loom/` includes this file.
#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
