//! The functions of the table of this extension module, which all modules use if it was first, and the lists that each thread
//! has in it.
//! Invariant: a number of this table is the address of a slot, or has the flag `TREE`.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::thread::LocalKey;

use dlbridge::ffi::Bytes;

use super::list::{List, Lists};
use super::ordered::Ordered;
use super::slot::Slot;
use super::sync::MutexGuard;
use super::table::{Place, Table};
use super::{Kind, Other};

/// The functions of a table. A later version of this library may add some at the end, and then says another `version`; these
/// keep their types, and mean the same. A borrow has a number, which is not 0, and of which the two lowest bits are 0.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Functions {
    pub(super) version: usize,
    /// Borrows bytes to read, and returns the number; or 0 and another borrow.
    pub(super) read: extern "C" fn(&Bytes, &mut MaybeUninit<Other>) -> usize,
    /// The same, to write.
    pub(super) write: extern "C" fn(&Bytes, &mut MaybeUninit<Other>) -> usize,
    /// Borrows bytes to read for a tensor that Rust keeps, and returns the number. It replaces the borrow of this number; with
    /// 0, no code outside the module has the memory yet.
    pub(super) keep: unsafe extern "C" fn(&Bytes, usize) -> usize,
    /// Ends the borrow of this number, on any thread. Its bytes begin at the address.
    pub(super) end: unsafe extern "C" fn(usize, usize),
    /// Whether memory is borrowed to write, for a thread that keeps others from beginning to.
    pub(super) has_writers: extern "C" fn() -> bool,
}

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

/// Takes a list for this thread, and calls a function again that needs it.
#[cold]
#[inline(never)]
fn again(mine: &'static LocalKey<Mine>, all: &Lists, function: &mut dyn FnMut() -> usize) -> usize {
    mine.set(Some(all.take()));
    let is_ending = END.try_with(|_| ()).is_err();
    let number = function();
    // A thread that ends has given its lists back already.
    if let (true, Some(list)) = (is_ending, mine.get()) {
        mine.set(None);
        list.give_back();
    }
    number
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

#[inline(always)]
fn begin(mine: &'static List, bytes: &Bytes, kind: Kind, found: &mut MaybeUninit<Other>) -> usize {
    let answered = |slot| answer(mine, slot, bytes, kind, found);
    TABLE.begin(mine, bytes, kind).map_or_else(answered, number)
}

#[cold]
#[inline(never)]
fn answer(
    mine: &'static List,
    slot: &'static Slot,
    bytes: &Bytes,
    kind: Kind,
    found: &mut MaybeUninit<Other>,
) -> usize {
    let refused = |other| {
        found.write(other);
        0
    };
    TABLE.answer(mine, slot, bytes, kind).map_or_else(refused, number)
}

extern "C" fn read(bytes: &Bytes, found: &mut MaybeUninit<Other>) -> usize {
    match READS.get() {
        Some(mine) => begin(mine, bytes, Kind::Read, found),
        None => again(&READS, &TABLE.reads, &mut || read(bytes, found)),
    }
}

extern "C" fn write(bytes: &Bytes, found: &mut MaybeUninit<Other>) -> usize {
    match WRITES.get() {
        Some(mine) => begin(mine, bytes, Kind::Write, found),
        None => again(&WRITES, &TABLE.writes, &mut || write(bytes, found)),
    }
}

unsafe extern "C" fn keep(bytes: &Bytes, of: usize) -> usize {
    let Some(mine) = READS.get() else {
        // SAFETY: the caller's duty, which is the same.
        return again(&READS, &TABLE.reads, &mut || unsafe { keep(bytes, of) });
    };
    // SAFETY: the number of an argument's borrow, which is in a slot (the caller's duty).
    let of = (of != 0).then(|| unsafe { slot_of(of) });
    match TABLE.keep(mine, bytes, of) {
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
