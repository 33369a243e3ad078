//! What the threads do, and what must hold: of two borrows that share a byte, neither is to write.

#[allow(dead_code, reason = "what the model does not use")]
#[path = "../../../crates/dlbridge-pyo3/src/ffi/borrow/list.rs"]
mod list;
#[allow(dead_code, reason = "the same")]
#[path = "../../../crates/dlbridge-pyo3/src/ffi/borrow/ordered.rs"]
mod ordered;
#[allow(dead_code, reason = "the same")]
#[path = "../../../crates/dlbridge-pyo3/src/ffi/borrow/slot.rs"]
mod slot;
mod sync;
#[allow(dead_code, reason = "the same")]
#[path = "../../../crates/dlbridge-pyo3/src/ffi/borrow/table.rs"]
mod table;

use std::ops::Range;
use std::sync::Arc;

use dlbridge::ffi::Bytes;
use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::{AtomicI32, Ordering};
use loom::thread;

use self::list::List;
use self::slot::Slot;
use self::table::{Place, Table};

/// So few that the second borrow of a thread needs another segment, and the tree if it is kept.
const SLOTS: usize = 1;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Read,
    Write,
}

/// Named by an error of the crate.
#[allow(dead_code, reason = "the model asks only whether there is one")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Other {
    kind: Kind,
    is_kept: bool,
    bytes: Bytes,
}

/// A borrow of bytes, and its end.
#[derive(Clone)]
enum Act {
    Read(Range<usize>),
    Write(Range<usize>),
    /// To read or to write; then to read as a tensor that is kept.
    Keep(Kind, Range<usize>),
    /// The act, beside a borrow to read of other bytes.
    Beside(Range<usize>, Box<Self>),
}

use Act::{Beside, Keep, Read, Write};
use Kind::{Read as R, Write as W};

/// The users of each byte, and the byte itself. It shares no code with the table; loom sees its accesses, so that it tries both
/// orders of two, and finds two of which neither happens before the other.
struct Users([(AtomicI32, UnsafeCell<u8>); 8]);

impl Users {
    /// A writer counts as minus 100.
    fn come(&self, bytes: &Range<usize>, kind: Kind) {
        for (users, byte) in &self.0[bytes.clone()] {
            let step = if kind == R { 1 } else { -100 };
            let before = users.fetch_add(step, Ordering::Relaxed);
            let excludes = before != 0 && (kind == W || before < 0);
            assert!(!excludes, "a byte is borrowed twice, and written: {before}");
            match kind {
                // SAFETY: loom checks that no other thread writes it.
                R => _ = byte.with(|byte| unsafe { *byte }),
                // SAFETY: loom checks that no other thread uses it.
                W => byte.with_mut(|byte| unsafe { *byte += 1 }),
            }
        }
    }

    fn go(&self, bytes: &Range<usize>, kind: Kind) {
        for (users, _) in &self.0[bytes.clone()] {
            users.fetch_sub(if kind == R { 1 } else { -100 }, Ordering::Relaxed);
        }
    }
}

/// The lists of a thread.
struct Mine {
    reads: &'static List,
    writes: &'static List,
}

impl Mine {
    fn take(table: &Table) -> Self {
        Self { reads: table.reads.take(), writes: table.writes.take() }
    }

    fn give_back(self) {
        self.reads.give_back();
        self.writes.give_back();
    }
}

fn bytes(range: &Range<usize>) -> Bytes {
    Bytes::of(64 + range.start, &[range.len() as i64], &[1], 1).expect("not empty")
}

/// Borrows by the two steps of the crate.
fn borrow(table: &Table, mine: &Mine, bytes: &Bytes, kind: Kind) -> Option<&'static Slot> {
    let mine = if kind == R { mine.reads } else { mine.writes };
    let answered = |slot| table.answer(mine, slot, bytes, kind);
    table.begin(mine, bytes, kind).or_else(answered).ok()
}

/// Whether the borrow was granted.
fn act(table: &Table, mine: &Mine, users: &Users, act: &Act) -> bool {
    let (kind, range) = match act {
        Beside(range, other) => {
            let Some(slot) = borrow(table, mine, &bytes(range), R) else { return false };
            users.come(range, R);
            let granted = self::act(table, mine, users, other);
            users.go(range, R);
            slot.free();
            return granted;
        }
        Read(range) => (R, range),
        Write(range) => (W, range),
        Keep(kind, range) => (*kind, range),
    };
    let bytes = bytes(range);
    let Some(slot) = borrow(table, mine, &bytes, kind) else { return false };
    users.come(range, kind);
    users.go(range, kind);
    let Keep(..) = act else {
        slot.free();
        return true;
    };
    users.come(range, R);
    let place = table.keep(mine.reads, &bytes, Some(slot));
    // It is read until its end.
    users.come(range, R);
    users.go(range, R);
    users.go(range, R);
    match place {
        Place::Slot(slot) => slot.free(),
        Place::Tree(number) => table.end_in_tree(number, bytes.start),
    }
    true
}

fn all((table, users): &(Table, Users), mine: Mine, acts: &[Act], apart: bool) {
    for it in acts {
        let granted = act(table, &mine, users, it);
        assert!(granted || !apart, "a borrow that shares no byte is refused");
    }
    mine.give_back();
}

/// Uses all of the table once, on the thread that starts the others: what loom's atomics are at first is to happen before
/// all else.
fn prepared(threads: usize) -> Table {
    let table = Table::new();
    let mine: Vec<_> = (0..threads).map(|_| Mine::take(&table)).collect();
    let gaps = Bytes::of(64, &[2], &[4], 1).expect("not empty");
    for mine in mine {
        let slots = [(); SLOTS + 1].map(|()| borrow(&table, &mine, &gaps, R).expect("free"));
        let kept = table.keep(mine.reads, &gaps, Some(slots[SLOTS]));
        let Place::Tree(number) = kept else { panic!("in the second segment") };
        table.end_in_tree(number, 64);
        slots[..SLOTS].iter().for_each(|slot| slot.free());
        borrow(&table, &mine, &gaps, W).expect("free").free();
        mine.give_back();
    }
    table
}

/// Runs threads in every order with at most three forced switches. If no two have a byte in common (`apart`), none is
/// refused.
fn check(name: &str, apart: bool, threads: &[&[Act]]) {
    let mut model = Builder::new();
    (model.preemption_bound, model.max_permutations) = (Some(3), Some(30_000));
    model.max_branches = 20_000;
    let threads: Vec<_> = threads.iter().map(|acts| acts.to_vec()).collect();
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let users = Users(std::array::from_fn(|_| (AtomicI32::new(0), UnsafeCell::new(0))));
        let shared = Arc::new((prepared(threads.len()), users));
        let spawn = |acts: &Vec<Act>| {
            let (shared, acts) = (Arc::clone(&shared), acts.clone());
            let mine = Mine::take(&shared.0);
            thread::spawn(move || all(&shared, mine, &acts, apart))
        };
        let others: Vec<_> = threads[1..].iter().map(spawn).collect();
        all(&shared, Mine::take(&shared.0), &threads[0], apart);
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        let mine = Mine::take(&shared.0);
        assert!(act(&shared.0, &mine, &shared.1, &Write(0..8)), "all borrows have ended");
    });
    println!("{name}: {} executions", executions.load(Ordering::Relaxed));
}

pub(crate) fn run() {
    let beside = |it| Beside(6..7, Box::new(it));
    check("a reader and a writer", false, &[&[Read(0..2)], &[Write(1..3)]]);
    check(
        "two readers in one slot and a writer",
        false,
        &[&[Read(0..2), Read(1..3)], &[Write(1..3)]],
    );
    check("two writers", false, &[&[Write(0..2)], &[Write(1..3)]]);
    check("three writers", false, &[&[Write(0..2)], &[Write(1..3)], &[Write(2..4)]]);
    // A thread that leaves a segment out comes after the borrows that ended there.
    check("a writer that went on", false, &[&[Write(0..2), Write(4..6)], &[Read(0..2)]]);
    check("a reader that went on", false, &[&[Read(0..2), Read(4..6)], &[Write(0..2)]]);
    check("a reader that is kept", false, &[&[Keep(R, 0..2)], &[Write(1..3)]]);
    check("a reader that is kept in the tree", false, &[&[beside(Keep(R, 0..2))], &[Write(1..3)]]);
    check("a writer that is kept", false, &[&[Keep(W, 0..2)], &[Read(1..3)]]);
    check("a writer that is kept, and a writer", false, &[&[Keep(W, 0..2)], &[Write(1..3)]]);
    check("two readers and a writer", false, &[&[Read(0..2)], &[Write(1..3)], &[Read(2..4)]]);
    check(
        "readers in two segments",
        false,
        &[&[beside(Read(1..3))], &[Write(1..3)], &[Read(0..2)]],
    );
    check("readers, and a writer between them", true, &[&[Read(0..2), Read(4..6)], &[Write(2..4)]]);
    check("writers apart", true, &[&[Write(0..2), Write(4..6)], &[Write(2..4)]]);
}
