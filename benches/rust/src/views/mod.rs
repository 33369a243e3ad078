//! Times loops over the elements of a view, and the same loops over a slice and over ndarray's
//! iterator; the loops are in `cases.rs`.
//! Invariant: all methods of a case return the same number, which is checked before timing.

pub mod cases;

use std::hint::black_box;
use std::time::Instant;

use cases::{Case, cases};

/// The fastest round counts, since other load on the machine only adds time.
const ROUNDS: usize = 301;
/// The approximate length of a round.
const ROUND_NS: f64 = 50_000.0;

/// Prints a line for each method: the numbers of its case and of the method in it, loop, type,
/// layout, method, nanoseconds.
pub fn measure() {
    for (at, case) in cases().iter().enumerate() {
        check(case);
        let mut best = vec![f64::INFINITY; case.ways.len()];
        let calls: Vec<_> = case.ways.iter().map(|(_, run)| calls(run)).collect();
        for _ in 0..ROUNDS {
            for (index, (_, run)) in case.ways.iter().enumerate() {
                best[index] = time(run, calls[index]).min(best[index]);
            }
        }
        let Case { name, dtype, layout, .. } = case;
        for (index, ((who, _), ns)) in case.ways.iter().zip(best).enumerate() {
            println!("{at}\t{index}\t{name}\t{dtype}\t{layout}\t{who}\t{ns:.1}");
        }
    }
}

/// Runs each method the given number of times, in the order of [`measure`], for a tool that counts
/// the instructions of [`counted_views`].
pub fn count(times: usize) {
    for case in cases() {
        for (_, run) in &case.ways {
            // The first run may differ: its memory is not mapped yet.
            black_box(run());
            counted_views(run, times);
        }
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
fn counted_views(run: &dyn Fn() -> f64, times: usize) {
    for _ in 0..times {
        black_box(run());
    }
}

fn check(case: &Case) {
    let results: Vec<_> = case.ways.iter().map(|(_, run)| run()).collect();
    let Case { name, dtype, layout, .. } = case;
    assert!(results.iter().all(|x| *x == results[0]), "{name} {dtype} {layout}: {results:?}");
}

fn time(run: &dyn Fn() -> f64, calls: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        black_box(run());
    }
    start.elapsed().as_nanos() as f64 / f64::from(calls)
}

fn calls(run: &dyn Fn() -> f64) -> u32 {
    (ROUND_NS / time(run, 10)).ceil() as u32
}
