//! The functions of the table of this extension module, which all modules use if it was first, and the lists that each thread
//! has in it.
//! Invariant: a number of this table is the address of a slot, or has the flag `TREE`.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::LocalKey;

use dlbridge::ffi::Bytes;

use super::Other;
use super::list::{List, Lists};
use super::ordered::Ordered;
use super::shared::Functions;
use super::slot::Slot;
use super::sync::MutexGuard;
use super::table::{Place, Table};

pub(super) static OWN: Functions = Functions { version: 1, read, write, keep, end, has_writers };

static TABLE: Table = Table::new();

/// The flag of a number in the tree.
const TREE: usize = 4;

type Mine = Cell<Option<&'static List>>;

thread_local! {
    static READS: Mine = const { Cell::new(None) };
    static WRITES: Mine = const { Cell::new(None) };
    static END: End = const { End };
}

/// Gives back the lists of a thread that ends.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        for mine in [READS.take(), WRITES.take()].into_iter().flatten() {
            mine.give_back();
        }
    }
}

/// Calls a function with this thread's list.
#[inline(always)]
fn with<R>(mine: &'static LocalKey<Mine>, all: &Lists, work: impl Fn(&'static List) -> R) -> R {
    match mine.get() {
        Some(list) => work(list),
        None => {
            let list = all.take();
            let is_alive = END.try_with(|_| mine.set(Some(list))).is_ok();
            let result = work(list);
            // A thread that ends has given its lists back already.
            if !is_alive {
                list.give_back();
            }
            result
        }
    }
}

fn number(slot: &'static Slot) -> usize {
    ptr::from_ref(slot).expose_provenance()
}

/// # Safety
///
/// The number of a borrow in a slot.
unsafe fn slot_of(number: usize) -> &'static Slot {
    // SAFETY: the address of a slot, which lives as long as the process (F6).
    unsafe { &*ptr::with_exposed_provenance(number) }
}

fn answer(result: Result<&'static Slot, Other>, found: &mut MaybeUninit<Other>) -> usize {
    result.map_or_else(
        |other| {
            found.write(other);
            0
        },
        number,
    )
}

extern "C" fn read(bytes: &Bytes, other: &mut MaybeUninit<Other>) -> usize {
    answer(with(&READS, &TABLE.reads, |mine| TABLE.read(mine, bytes)), other)
}

extern "C" fn write(bytes: &Bytes, other: &mut MaybeUninit<Other>) -> usize {
    answer(with(&WRITES, &TABLE.writes, |mine| TABLE.write(mine, bytes)), other)
}

unsafe extern "C" fn keep(bytes: &Bytes, of: usize) -> usize {
    // SAFETY: the number of an argument's borrow, which is in a slot (the caller's duty).
    let of = (of != 0).then(|| unsafe { slot_of(of) });
    match with(&READS, &TABLE.reads, |mine| TABLE.keep(mine, bytes, of)) {
        Place::Slot(slot) => number(slot),
        Place::Tree(number) => number << 3 | TREE,
    }
}

unsafe extern "C" fn end(number: usize, start: usize) {
    if number & TREE == 0 {
        // SAFETY: the number of a borrow in a slot (the caller's duty).
        unsafe { slot_of(number) }.free();
    } else {
        TABLE.end_in_tree(number >> 3, start);
    }
}

extern "C" fn has_writers() -> bool {
    TABLE.has_writers()
}

/// The tree, locked.
pub(super) type Tree = MutexGuard<'static, Ordered>;

pub(super) fn tree() -> Tree {
    TABLE.tree()
}

/// After a fork, on the only thread.
pub(super) fn forget_threads() {
    let mine = [READS.get(), WRITES.get()].map(|list| list.map_or(ptr::null(), ptr::from_ref));
    TABLE.forget_threads(|list| mine.contains(&ptr::from_ref(list)));
}
