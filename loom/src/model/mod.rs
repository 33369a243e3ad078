//! What the threads do, and what must hold: of two borrows that share a byte, neither is to write.

#[allow(dead_code, reason = "what the model does not use")]
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
use loom::model::Builder;
use loom::sync::atomic::{AtomicI32, Ordering};
use loom::thread;

use self::table::{Table, is_in_slot};

/// So few that three borrows need the tree.
const SLOTS: usize = 2;

#[repr(u8)]
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
    /// To read, and the next one takes another slot.
    Read(Range<usize>),
    /// To read, and the next one takes the same slot.
    Moment(Range<usize>),
    Write(Range<usize>),
    /// To read or to write; then to read as a tensor that is kept.
    Keep(Kind, Range<usize>),
}

use Act::{Keep, Moment, Read, Write};
use Kind::{Read as R, Write as W};

/// The users of each byte. It shares no code with the table; loom sees its accesses, so that it tries both orders of two.
struct Users([AtomicI32; 8]);

impl Users {
    /// A writer counts as minus 100.
    fn come(&self, bytes: &Range<usize>, kind: Kind) {
        for byte in bytes.clone() {
            let step = if kind == R { 1 } else { -100 };
            let before = self.0[byte].fetch_add(step, Ordering::Relaxed);
            let excludes = before != 0 && (kind == W || before < 0);
            assert!(!excludes, "byte {byte} is borrowed twice, and written: {before}");
        }
    }

    fn go(&self, bytes: &Range<usize>, kind: Kind) {
        for byte in bytes.clone() {
            self.0[byte].fetch_sub(if kind == R { 1 } else { -100 }, Ordering::Relaxed);
        }
    }
}

/// Whether the borrow was granted.
fn act(table: &Table, users: &Users, act: &Act) -> bool {
    let (Read(range) | Moment(range) | Write(range) | Keep(_, range)) = act;
    let start = 64 + range.start;
    let bytes = Bytes::of(start, &[range.len() as i64], &[1], 1).expect("not empty");
    let (kind, borrowed) = match act {
        Read(_) | Keep(R, _) => (R, table.read::<true>(&bytes)),
        Moment(_) => (R, table.read::<false>(&bytes)),
        Write(_) | Keep(W, _) => (W, table.write(&bytes)),
    };
    let Ok(number) = borrowed else { return false };
    users.come(range, kind);
    match act {
        Keep(..) => {
            users.go(range, kind);
            users.come(range, R);
            let kept = table.keep_argument(&bytes, number, kind);
            users.go(range, R);
            table.end(kept, start, R);
            return true;
        }
        _ => users.go(range, kind),
    }
    match act {
        Moment(_) if is_in_slot(number) => table.end_slot::<false>(number),
        Read(_) if is_in_slot(number) => table.end_slot::<true>(number),
        _ => table.end(number, start, kind),
    }
    true
}

fn all((table, users): &(Table, Users), acts: &[Act], apart: bool) {
    for it in acts {
        let granted = act(table, users, it);
        assert!(granted || !apart, "a borrow that shares no byte is refused");
    }
}

/// Uses all of the table once, on the thread that starts the others: what loom's atomics are at first is to happen before
/// all else. Readers find no writer afterwards, and the first slot used.
fn prepared() -> Table {
    let table = Table::new();
    let gaps = Bytes::of(64, &[2], &[4], 1).expect("not empty");
    let numbers = [(); SLOTS].map(|()| table.read::<true>(&gaps).expect("free"));
    numbers.iter().rev().for_each(|&number| table.end(number, 64, R));
    let number = table.write(&gaps).expect("free");
    table.end(number, 64, W);
    table
}

/// Runs threads in every order with at most three forced switches. If no two have a byte in common (`apart`), none is
/// refused.
fn check(name: &str, apart: bool, threads: &[&[Act]]) {
    let mut model = Builder::new();
    (model.preemption_bound, model.max_permutations) = (Some(3), Some(30_000));
    let threads: Vec<_> = threads.iter().map(|acts| acts.to_vec()).collect();
    let executions = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&executions);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let users = Users(std::array::from_fn(|_| AtomicI32::new(0)));
        let shared = Arc::new((prepared(), users));
        let spawn = |acts: &Vec<Act>| {
            let (shared, acts) = (Arc::clone(&shared), acts.clone());
            thread::spawn(move || all(&shared, &acts, apart))
        };
        let others: Vec<_> = threads[1..].iter().map(spawn).collect();
        all(&shared, &threads[0], apart);
        others.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(act(&shared.0, &shared.1, &Write(0..8)), "all borrows have ended");
    });
    println!("{name}: {} executions", executions.load(Ordering::Relaxed));
}

pub(crate) fn run() {
    check("a reader and a writer", false, &[&[Read(0..2)], &[Write(1..3)]]);
    check(
        "two readers in one slot and a writer",
        false,
        &[&[Moment(0..2), Moment(1..3)], &[Write(1..3)]],
    );
    check("two writers", false, &[&[Write(0..2)], &[Write(1..3)]]);
    check("a reader that is kept", false, &[&[Keep(R, 0..2)], &[Write(1..3)]]);
    check("a writer that is kept", false, &[&[Keep(W, 0..2)], &[Read(1..3)]]);
    check("two readers and a writer", false, &[&[Read(0..2)], &[Write(1..3)], &[Read(2..4)]]);
    check(
        "more readers than slots",
        false,
        &[&[Read(0..2), Read(1..3)], &[Write(1..3)], &[Read(0..2)]],
    );
    check(
        "two readers in one slot, and a writer between them",
        true,
        &[&[Moment(0..2), Moment(4..6)], &[Write(2..4)]],
    );
}
