//! The table without Python: threads, more borrows than slots, many that are kept, a fork.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, AtomicUsize};

use super::*;

fn bytes(start: usize, len: usize) -> Bytes {
    Bytes::of(start, &[len as i64], &[1], 1).expect("elements")
}

fn is_empty(table: &Table) -> bool {
    table.locked(|ordered| ordered.is_empty())
        && table.writers.load(Ordering::Relaxed) == 0
        && table.slots.iter().all(Slot::is_free)
}

/// A small generator, so that a failure comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Every borrow and its end, in random order, beside a list of what is borrowed.
#[test]
fn the_table_agrees_with_a_list_of_all_borrows() {
    static TABLE: Table = Table::new();
    let mut random = Random(1);
    let mut borrows: Vec<(u64, Bytes, Kind)> = Vec::new();
    let rounds = if cfg!(miri) { 2000 } else { 60_000 };
    let mut refused = 0;
    for round in 0..rounds {
        // Few borrows at first, then more than there are slots.
        let many = 40 + round % 1000;
        let start = 4096 + random.below(60) * 8;
        let (rows, columns) = (1 + random.below(3) as i64, 1 + random.below(4) as i64);
        let strides = [[4, 1], [1, 3], [7, 2], [0, 1]][random.below(4)];
        let bytes =
            Bytes::of(start, &[rows, columns], &strides, 1 + random.below(4)).expect("some");
        let bytes = Bytes { start: bytes.start, ..bytes };
        if borrows.len() > random.below(many) {
            let (number, bytes, kind) = borrows.swap_remove(random.below(borrows.len()));
            if kind == Kind::Read && is_in_slot(number) {
                TABLE.end_slot::<true>(number);
            } else {
                TABLE.end(number, bytes.start, kind);
            }
            continue;
        }
        let excluded = |kind: Kind| {
            let mut others =
                borrows.iter().filter(|(_, _, other)| kind == Kind::Write || *other == Kind::Write);
            others.any(|(_, other, _)| other.overlaps(&bytes))
        };
        let (kind, result) = match random.below(8) {
            0 => (Kind::Write, TABLE.write(&bytes)),
            1 => (
                Kind::Read,
                TABLE
                    .read::<true>(&bytes)
                    .map(|number| TABLE.keep_argument(&bytes, number, Kind::Read)),
            ),
            2 => match TABLE.write(&bytes) {
                Ok(number) => (Kind::Read, Ok(TABLE.keep_argument(&bytes, number, Kind::Write))),
                Err(other) => (Kind::Write, Err(other)),
            },
            _ => (Kind::Read, TABLE.read::<true>(&bytes)),
        };
        match result {
            // A writer that became a reader found no other borrow either.
            Ok(number) => {
                assert!(!excluded(kind), "round {round}: {bytes:?}");
                borrows.push((number, bytes, kind));
            }
            Err(other) => {
                assert!(excluded(kind) && other.bytes.overlaps(&bytes), "round {round}: {other:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > rounds / 20 && refused < rounds, "{refused}");
    for (number, bytes, kind) in borrows {
        TABLE.end(number, bytes.start, kind);
    }
    assert!(is_empty(&TABLE));
}

/// Each byte counts its readers; a writer makes it negative.
fn exclude_each_other(table: &'static Table, rounds: usize) -> [usize; 3] {
    const BYTES: usize = 12;
    static USERS: [AtomicI32; BYTES] = [const { AtomicI32::new(0) }; BYTES];
    let users = |start, len| &USERS[start..start + len];
    let [written, ordered, moments] = [const { AtomicUsize::new(0) }; 3];
    let count = |counter: &AtomicUsize, is: bool| {
        counter.fetch_add(usize::from(is), Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for seed in 0..4 {
            let (written, ordered, moments) = (&written, &ordered, &moments);
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..rounds {
                    let start = random.below(BYTES);
                    let len = 1 + random.below((BYTES - start).min(3));
                    let bytes = bytes(64 + start, len);
                    let kind = if random.below(3) == 0 { Kind::Write } else { Kind::Read };
                    let [is_kept, is_moment] = [4, 2].map(|limit| random.below(limit) == 0);
                    let result = match kind {
                        Kind::Write => table.write(&bytes),
                        Kind::Read if is_moment => table.read::<false>(&bytes),
                        Kind::Read => table.read::<true>(&bytes),
                    };
                    let Ok(number) = result else { continue };
                    let users = users(start, len);
                    let step = if kind == Kind::Write { -100 } else { 1 };
                    for user in users {
                        let before = user.fetch_add(step, Ordering::Relaxed);
                        assert!(before == 0 || (kind == Kind::Read && before > 0), "{before}");
                    }
                    count(written, kind == Kind::Write);
                    count(ordered, !is_in_slot(number));
                    count(moments, kind == Kind::Read && is_moment);
                    if random.below(4) == 0 {
                        thread::yield_now();
                    }
                    for user in users {
                        user.fetch_sub(step, Ordering::Relaxed);
                    }
                    if is_kept {
                        let number = table.keep_argument(&bytes, number, kind);
                        assert!(users.iter().all(|user| user.load(Ordering::Relaxed) >= 0));
                        table.end(number, bytes.start, Kind::Read);
                    } else if kind == Kind::Write || !is_in_slot(number) {
                        table.end(number, bytes.start, kind);
                    } else if is_moment {
                        table.end_slot::<false>(number);
                    } else {
                        table.end_slot::<true>(number);
                    }
                }
            });
        }
    });
    [written, ordered, moments].map(AtomicUsize::into_inner)
}

/// With all slots, then with one, so that most borrows are in the tree.
#[test]
fn threads_exclude_each_other() {
    static TABLE: Table = Table::new();
    let rounds = if cfg!(miri) { 150 } else { 20_000 };
    let [written, _, moments] = exclude_each_other(&TABLE, rounds);
    assert!(written > rounds / 10 && moments > rounds / 10, "{written}, {moments}");
    assert!(is_empty(&TABLE));
    let others: Vec<_> =
        (1..SLOTS).map(|_| TABLE.read::<true>(&bytes(4096, 8)).expect("free")).collect();
    let [written, ordered, moments] = exclude_each_other(&TABLE, rounds / 4);
    let few = rounds / 40;
    assert!(written > few && ordered > few && moments > few, "{written}, {ordered}, {moments}");
    others.iter().for_each(|&number| TABLE.end(number, 4096, Kind::Read));
    assert!(is_empty(&TABLE));
}

#[test]
fn many_kept_borrows_are_a_tree_of_logarithmic_depth_and_leave_nothing() {
    static TABLE: Table = Table::new();
    let many = if cfg!(miri) { 300 } else { 100_000 };
    // In the order of their addresses, the worst for a tree without balance; then as many of one array.
    let mut kept: HashMap<usize, (u64, Bytes)> = HashMap::new();
    for at in 0..many {
        let bytes = bytes(4096 + at % (many / 2) * 16, 8);
        kept.insert(at, (TABLE.keep(&bytes), bytes));
    }
    let depth = TABLE.locked(|ordered| ordered.depth());
    assert!(depth < 60, "{depth}");
    for at in [0, 7, many / 2 - 1] {
        let start = 4096 + at * 16;
        TABLE.write(&bytes(start + 7, 2)).expect_err("kept");
        let number = TABLE.write(&bytes(start + 8, 8)).expect("between two");
        TABLE.end(number, start + 8, Kind::Write);
    }
    for (number, bytes) in kept.into_values() {
        TABLE.end(number, bytes.start, Kind::Read);
    }
    assert!(is_empty(&TABLE));
}

#[test]
fn slots_at_the_end_are_searched_only_while_they_are_used() {
    static TABLE: Table = Table::new();
    let numbers: Vec<_> =
        (0..SLOTS + 20).map(|_| TABLE.read::<true>(&bytes(64, 8)).expect("free")).collect();
    assert_eq!(numbers.iter().filter(|&&number| is_in_slot(number)).count(), SLOTS);
    TABLE.write(&bytes(64, 1)).expect_err("read");
    assert_eq!(TABLE.used.load(Ordering::Relaxed), SLOTS);
    numbers.iter().for_each(|&number| TABLE.end(number, 64, Kind::Read));
    let number = TABLE.write(&bytes(64, 1)).expect("free");
    assert!(TABLE.used.load(Ordering::Relaxed) <= number as usize + 1);
    TABLE.end(number, 64, Kind::Write);
    assert!(is_empty(&TABLE));
}

#[test]
fn threads_that_a_fork_ended_leave_nothing_claimed() {
    static TABLE: Table = Table::new();
    let number = TABLE.read::<true>(&bytes(64, 8)).expect("free");
    TABLE.lock();
    TABLE.slots[3].claim_for_test();
    TABLE.free_claimed();
    TABLE.unlock();
    TABLE.write(&bytes(64, 8)).expect_err("the thread that forked reads");
    TABLE.end_slot::<true>(number);
    assert!(is_empty(&TABLE));
}
