//! The table without Python: threads, lists of many segments, many tensors that are kept, a fork.

use std::sync::atomic::{AtomicI32, AtomicUsize};
use std::thread;

use super::super::SLOTS;
use super::*;

fn bytes(start: usize, len: usize) -> Bytes {
    Bytes::of(start, &[len as i64], &[1], 1).expect("elements")
}

impl Table {
    fn borrow(
        &self,
        mine: &'static List,
        bytes: &Bytes,
        kind: Kind,
    ) -> Result<&'static Slot, Other> {
        self.begin(mine, bytes, kind).or_else(|slot| self.answer(mine, slot, bytes, kind))
    }

    fn read(&self, mine: &'static List, bytes: &Bytes) -> Result<&'static Slot, Other> {
        self.borrow(mine, bytes, Kind::Read)
    }

    fn write(&self, mine: &'static List, bytes: &Bytes) -> Result<&'static Slot, Other> {
        self.borrow(mine, bytes, Kind::Write)
    }
}

/// The lists of one thread.
#[derive(Clone, Copy)]
struct Mine {
    reads: &'static List,
    writes: &'static List,
}

impl Mine {
    fn take(table: &Table) -> Self {
        Self { reads: table.reads.take(), writes: table.writes.take() }
    }

    fn begin(self, table: &Table, bytes: &Bytes, kind: Kind) -> Result<&'static Slot, Other> {
        match kind {
            Kind::Read => table.read(self.reads, bytes),
            Kind::Write => table.write(self.writes, bytes),
        }
    }
}

fn end(table: &Table, place: Place, bytes: &Bytes) {
    match place {
        Place::Slot(slot) => slot.free(),
        Place::Tree(number) => table.end_in_tree(number, bytes.start),
    }
}

fn is_empty(table: &Table) -> bool {
    let mut lists = table.reads.iter().chain(table.writes.iter());
    lists.all(|list| list.slots().all(Slot::is_free)) && table.tree().span() == (0, 0)
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

/// Every borrow and its end, in random order and by two threads' lists, beside a list of what is borrowed.
#[test]
fn the_table_agrees_with_a_list_of_all_borrows() {
    static TABLE: Table = Table::new();
    let mine = [(); 2].map(|()| Mine::take(&TABLE));
    let mut random = Random(1);
    let mut borrows: Vec<(Place, Bytes, Kind)> = Vec::new();
    let rounds = if cfg!(miri) { 2000 } else { 60_000 };
    let (mut refused, mut in_tree) = (0, 0);
    for round in 0..rounds {
        // Few borrows at first, then more than a segment has.
        let many = 40 + round % 1000;
        let start = 4096 + random.below(60) * 8;
        let (rows, columns) = (1 + random.below(3) as i64, 1 + random.below(4) as i64);
        let strides = [[4, 1], [1, 3], [7, 2], [0, 1]][random.below(4)];
        let bytes =
            Bytes::of(start, &[rows, columns], &strides, 1 + random.below(4)).expect("some");
        if borrows.len() > random.below(many) {
            let (place, bytes, _) = borrows.swap_remove(random.below(borrows.len()));
            end(&TABLE, place, &bytes);
            continue;
        }
        let excluded = |kind: Kind| {
            let mut others =
                borrows.iter().filter(|(_, _, other)| kind == Kind::Write || *other == Kind::Write);
            others.any(|(_, other, _)| other.overlaps(&bytes))
        };
        let mine = mine[random.below(2)];
        let kind = if random.below(4) == 0 { Kind::Write } else { Kind::Read };
        match mine.begin(&TABLE, &bytes, kind) {
            Ok(slot) => {
                assert!(!excluded(kind), "round {round}: {bytes:?}");
                if random.below(3) == 0 {
                    let place = TABLE.keep(mine.reads, &bytes, Some(slot));
                    in_tree += usize::from(matches!(place, Place::Tree(_)));
                    borrows.push((place, bytes, Kind::Read));
                } else {
                    borrows.push((Place::Slot(slot), bytes, kind));
                }
            }
            Err(other) => {
                assert!(excluded(kind) && other.bytes.overlaps(&bytes), "round {round}: {other:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > rounds / 20 && refused < rounds, "{refused}");
    assert!(in_tree > rounds / 100, "{in_tree}");
    borrows.iter().for_each(|(place, bytes, _)| end(&TABLE, *place, bytes));
    assert!(is_empty(&TABLE));
}

/// All words of a thread's lists and of the table, while the other thread borrows, is refused, keeps and ends.
#[test]
fn a_thread_writes_no_word_of_another() {
    static TABLE: Table = Table::new();
    let [mine, other] = [(); 2].map(|()| Mine::take(&TABLE));
    let [read, written] = [bytes(64, 8), bytes(128, 8)];
    other.begin(&TABLE, &read, Kind::Read).expect("no other");
    other.begin(&TABLE, &written, Kind::Write).expect("no other");
    let words = || format!("{:?} {:?} {TABLE:?}", other.reads, other.writes);
    let before = words();
    assert_eq!(before.matches("state: ").count(), 2 * SLOTS, "{before}");
    for (bytes, kind) in [(&read, Kind::Read), (&bytes(256, 8), Kind::Write)] {
        mine.begin(&TABLE, bytes, kind).expect("granted").free();
        let slot = mine.begin(&TABLE, bytes, kind).expect("granted");
        end(&TABLE, TABLE.keep(mine.reads, bytes, Some(slot)), bytes);
    }
    for (bytes, kind) in [(&read, Kind::Write), (&written, Kind::Read), (&written, Kind::Write)] {
        assert!(mine.begin(&TABLE, bytes, kind).is_err());
    }
    assert_eq!(words(), before);
}

/// Each byte counts its readers; a writer makes it negative. Returns the numbers of writers and of kept tensors in the tree.
fn exclude_each_other(table: &'static Table, rounds: usize, before: usize) -> [usize; 2] {
    const BYTES: usize = 12;
    static USERS: [AtomicI32; BYTES] = [const { AtomicI32::new(0) }; BYTES];
    let users = |start, len| &USERS[start..start + len];
    let [written, in_tree] = [const { AtomicUsize::new(0) }; 2];
    thread::scope(|scope| {
        for seed in 0..4 {
            let (written, in_tree) = (&written, &in_tree);
            scope.spawn(move || {
                let (mut random, mine) = (Random(seed), Mine::take(table));
                let other = bytes(4096, 8);
                let others: Vec<_> =
                    (0..before).map(|_| mine.reads.begin(&other, Kind::Read)).collect();
                for _ in 0..rounds {
                    let start = random.below(BYTES);
                    let len = 1 + random.below((BYTES - start).min(3));
                    let bytes = bytes(64 + start, len);
                    let kind = if random.below(3) == 0 { Kind::Write } else { Kind::Read };
                    let is_kept = random.below(4) == 0;
                    let Ok(slot) = mine.begin(table, &bytes, kind) else { continue };
                    let users = users(start, len);
                    let step = if kind == Kind::Write { -100 } else { 1 };
                    for user in users {
                        let before = user.fetch_add(step, Ordering::Relaxed);
                        assert!(before == 0 || (kind == Kind::Read && before > 0), "{before}");
                    }
                    written.fetch_add(usize::from(kind == Kind::Write), Ordering::Relaxed);
                    if random.below(4) == 0 {
                        thread::yield_now();
                    }
                    for user in users {
                        user.fetch_sub(step, Ordering::Relaxed);
                    }
                    if is_kept {
                        let place = table.keep(mine.reads, &bytes, Some(slot));
                        assert!(users.iter().all(|user| user.load(Ordering::Relaxed) >= 0));
                        end(table, place, &bytes);
                        let is_in_tree = matches!(place, Place::Tree(_));
                        in_tree.fetch_add(usize::from(is_in_tree), Ordering::Relaxed);
                    } else {
                        slot.free();
                    }
                }
                others.iter().for_each(|slot| slot.free());
                mine.reads.give_back();
                mine.writes.give_back();
            });
        }
    });
    [written, in_tree].map(AtomicUsize::into_inner)
}

/// In the first segments, then in others, so that what is kept is in the tree.
#[test]
fn threads_exclude_each_other() {
    static TABLE: Table = Table::new();
    let rounds = if cfg!(miri) { 150 } else { 20_000 };
    let [written, _] = exclude_each_other(&TABLE, rounds, 0);
    assert!(written > rounds / 10, "{written}");
    assert!(is_empty(&TABLE));
    let [written, in_tree] = exclude_each_other(&TABLE, rounds / 4, SLOTS);
    assert!(written > rounds / 40 && in_tree > rounds / 40, "{written}, {in_tree}");
    assert!(is_empty(&TABLE));
    assert!(TABLE.reads.iter().count() <= 4, "threads take the lists that others gave back");
}

#[test]
fn many_kept_borrows_are_a_tree_of_logarithmic_depth_and_leave_nothing() {
    static TABLE: Table = Table::new();
    let mine = Mine::take(&TABLE);
    let many = if cfg!(miri) { 300 } else { 100_000 };
    // In the order of their addresses, the worst for a tree without balance; then as many of one array.
    let kept: Vec<_> = (0..many)
        .map(|at| {
            let bytes = bytes(4096 + at % (many / 2) * 16, 8);
            (TABLE.keep(mine.reads, &bytes, None), bytes)
        })
        .collect();
    let depth = TABLE.tree().depth();
    assert!((8..60).contains(&depth), "{depth}");
    for at in [0, 7, many / 2 - 1] {
        let start = 4096 + at * 16;
        TABLE.write(mine.writes, &bytes(start + 7, 2)).expect_err("kept");
        TABLE.write(mine.writes, &bytes(start + 8, 8)).expect("between two").free();
    }
    kept.iter().for_each(|(place, bytes)| end(&TABLE, *place, bytes));
    assert!(is_empty(&TABLE));
}

#[test]
fn a_list_grows_by_segments_and_a_writer_looks_only_at_those_near_it() {
    static TABLE: Table = Table::new();
    let mine = Mine::take(&TABLE);
    let many = 3 * SLOTS + 1;
    let begin = || -> Vec<_> {
        let begin = |at| TABLE.read(mine.reads, &bytes(4096 + at * 64, 8)).expect("no writer");
        (0..many).map(begin).collect()
    };
    let slots = begin();
    let near = |start| {
        let mut count = 0;
        mine.reads.find(&bytes(start, 8), |_| {
            count += 1;
            None::<()>
        });
        count
    };
    assert_eq!(near(64), 0);
    assert_eq!(near(4096), SLOTS);
    assert_eq!(near(4096 + 3 * SLOTS * 64), 1);
    TABLE.write(mine.writes, &bytes(4096 + (many - 1) * 64, 1)).expect_err("read");
    slots.iter().for_each(|slot| slot.free());
    // A hole is used again, and so is the first segment.
    let again = begin();
    assert!(slots.iter().zip(&again).all(|(old, new)| ptr::eq(*old, *new)));
    again.iter().rev().for_each(|slot| slot.free());
    TABLE.read(mine.reads, &bytes(64, 8)).expect("free").free();
    assert_eq!(mine.reads.slots().count(), 1);
    assert!(is_empty(&TABLE));
}

#[test]
fn threads_that_a_fork_ended_get_no_answer_and_give_back_their_lists() {
    static TABLE: Table = Table::new();
    let [mine, gone] = [(); 2].map(|()| Mine::take(&TABLE));
    let [read, written] = [bytes(64, 8), bytes(128, 8)];
    TABLE.read(gone.reads, &read).expect("free");
    gone.writes.begin(&written, Kind::Write);
    let is_mine = |list: &List| [mine.reads, mine.writes].iter().any(|it| ptr::eq(*it, list));
    TABLE.forget_threads(is_mine);
    TABLE.write(mine.writes, &read).expect_err("the borrows of the threads that ended stay");
    TABLE.write(mine.writes, &written).expect("it was only asked for").free();
    let next = Mine::take(&TABLE);
    assert!(ptr::eq(next.reads, gone.reads) && ptr::eq(next.writes, gone.writes));
}

/// Of two writers that ask at once, one is granted; and of a reader and a writer.
#[test]
fn a_tie_has_one_winner() {
    static TABLE: Table = Table::new();
    let rounds = if cfg!(miri) { 20 } else { 3000 };
    for kinds in [[Kind::Write; 2], [Kind::Read, Kind::Write]] {
        let barrier = std::sync::Barrier::new(2);
        let granted = [const { AtomicUsize::new(0) }; 2].map(std::sync::Arc::new);
        thread::scope(|scope| {
            for (kind, granted) in kinds.into_iter().zip(granted.clone()) {
                let barrier = &barrier;
                scope.spawn(move || {
                    let mine = Mine::take(&TABLE);
                    for _ in 0..rounds {
                        barrier.wait();
                        let result = mine.begin(&TABLE, &bytes(64, 8), kind);
                        granted.fetch_add(usize::from(result.is_ok()), Ordering::Relaxed);
                        barrier.wait();
                        result.into_iter().for_each(Slot::free);
                    }
                });
            }
        });
        let granted = granted.map(|granted| granted.load(Ordering::Relaxed));
        assert_eq!(granted.iter().sum::<usize>(), rounds, "{kinds:?}: {granted:?}");
    }
    assert!(is_empty(&TABLE));
}
