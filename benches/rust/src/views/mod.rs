//! Loops over the elements of a view, beside the same loops over a slice and over ndarray's
//! iterator.
//! Which loops there are belongs to `cases.rs`.
//! Invariant: all ways of a case give the same number, which is checked before they are timed.

pub mod cases;

use std::hint::black_box;
use std::time::Instant;

use cases::{Case, cases};

/// The quickest round counts: whatever else the machine does only adds.
const ROUNDS: usize = 301;
/// A round lasts about so long.
const ROUND_NS: f64 = 50_000.0;

/// Prints a line for each way: the numbers of its case and in it, loop, type, layout, who,
/// nanoseconds.
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

/// Runs each way so many times, in the order of [`measure`], for a tool that counts the
/// instructions of [`counted_views`].
pub fn count(times: usize) {
    for case in cases() {
        for (_, run) in &case.ways {
            // The first run may be another: memory that is not there yet.
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
