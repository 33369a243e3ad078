//! Times sharing a vector and copying it, from 1 KiB to 256 MiB.
//! Invariant: a shared vector is read as a slice and returned as the same vector.

use std::hint::black_box;
use std::time::Instant;

use dlbridge::Tensor;

use crate::count;

/// The fastest round counts.
const ROUNDS: usize = 21;
/// Shares per round, and approximate bytes copied per round.
const SHARES: usize = 1000;
const BYTES: usize = 8 << 20;

/// Prints a line for each size and method: bytes, library, nanoseconds, bytes allocated.
pub fn measure() {
    for power in (10..=28).step_by(2) {
        let mut values: Vec<u8> = (0..1_usize << power).map(|i| i as u8).collect();
        let copies = (BYTES >> power).max(1);
        let ways: [(&str, fn(Vec<u8>) -> Vec<u8>, usize); 2] =
            [("dlbridge", share, SHARES), ("copy", copy, copies)];
        for (who, way, calls) in ways {
            let before = count::allocations().1;
            values = way(values);
            let added = count::allocations().1 - before;
            let mut best = f64::INFINITY;
            for _ in 0..ROUNDS {
                let start = Instant::now();
                for _ in 0..calls {
                    values = way(values);
                }
                best = best.min(start.elapsed().as_nanos() as f64 / calls as f64);
            }
            println!("{}\t{who}\t{best:.1}\t{added}", values.len());
        }
    }
}

fn share(values: Vec<u8>) -> Vec<u8> {
    let tensor = Tensor::from(values);
    black_box(tensor.as_slice::<u8>().expect("exclusive")[0]);
    tensor.into_owner().expect("a vector")
}

fn copy(values: Vec<u8>) -> Vec<u8> {
    let copied = values.clone();
    black_box(copied[0]);
    copied
}
