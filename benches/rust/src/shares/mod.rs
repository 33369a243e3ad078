//! Measures the time and the allocations of the cases in `cases.rs` and `crates.rs`.

pub mod cases;
#[cfg(feature = "crates")]
mod crates;
mod floor;

use std::hint::black_box;
use std::time::Instant;

use cases::{Case, Group};
use ndarray::Array2;

use crate::count;

/// Odd, so the median is one of the rounds.
const ROUNDS: usize = 101;

/// All groups.
fn groups() -> Vec<Group> {
    #[cfg(feature = "crates")]
    let others = crates::groups();
    #[cfg(not(feature = "crates"))]
    let others = Vec::new();
    std::iter::once(cases::group()).chain(others).collect()
}

/// Prints a line for each case: the numbers of its group and of the case in it, group, shape,
/// library, nanoseconds (the median of the rounds), allocations.
pub fn measure() {
    groups().iter().enumerate().for_each(measure_group);
}

/// Runs a case with the first `count` of 2000 arrays; the others are not dropped.
pub fn run(group: usize, case: usize, count: usize) {
    let group = &groups()[group];
    let (_, case): Case = group.cases[case];
    let mut made = arrays(group, 2000);
    for array in made.drain(..count) {
        black_box(case(black_box(array)));
    }
    std::process::exit(0);
}

fn arrays(group: &Group, count: usize) -> Vec<Array2<f32>> {
    (0..count).map(|_| Array2::from_elem(group.shape, 1.0)).collect()
}

/// Runs all cases in turn, round by round, so that other load on the machine affects all equally.
fn measure_group((at, group): (usize, &Group)) {
    let mut times = vec![Vec::with_capacity(ROUNDS); group.cases.len()];
    for _ in 0..ROUNDS {
        for (&(_, case), times) in group.cases.iter().zip(&mut times) {
            let made = arrays(group, group.batch);
            let start = Instant::now();
            made.into_iter().for_each(|array| {
                black_box(case(black_box(array)));
            });
            times.push(start.elapsed().as_nanos() as f64 / group.batch as f64);
        }
    }
    for (index, (&(who, case), times)) in group.cases.iter().zip(&mut times).enumerate() {
        times.sort_by(f64::total_cmp);
        let (rows, columns) = group.shape;
        let (median, allocations) = (times[ROUNDS / 2], allocations(group, case));
        let (name, shape) = (group.name, format!("{rows} x {columns}"));
        println!("{at}\t{index}\t{name}\t{shape}\t{who}\t{median:.1}\t{allocations}");
    }
}

fn allocations(group: &Group, case: fn(Array2<f32>) -> f32) -> usize {
    let array = arrays(group, 1).remove(0);
    let before = count::allocations().0;
    black_box(case(black_box(array)));
    count::allocations().0 - before
}
