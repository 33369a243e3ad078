//! The number of arrays per second that several threads convert to a tensor, view as an array and
//! drop.
//! Invariant: threads share only the allocator.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use ndarray::Array2;

use crate::shares::cases::{Case, there_and_back};

/// The best round counts.
const ROUNDS: usize = 11;
const THREADS: [usize; 4] = [1, 2, 4, 8];
const ROUND: Duration = Duration::from_millis(100);
const BATCH: u32 = 256;

/// Prints a line for each number of threads and library: threads, library, exchanges per second.
pub fn measure() {
    for (who, case) in there_and_back() {
        let mut best = THREADS.map(|threads| (threads, 0.0));
        // In turns, so that other load on the machine affects all equally.
        for _ in 0..ROUNDS {
            for (threads, best) in &mut best {
                *best = rate((who, case), *threads).max(*best);
            }
        }
        for (threads, rate) in best {
            println!("{threads}\t{who}\t{rate:.0}");
        }
    }
}

/// Exchanges per second of all threads together, timed from the barrier to the end of the last
/// thread, so time spent waiting for a core counts.
fn rate((_, case): Case, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let work = || {
        barrier.wait();
        let (start, mut done) = (Instant::now(), 0);
        while start.elapsed() < ROUND {
            for _ in 0..BATCH {
                black_box(case(black_box(Array2::from_elem((2, 3), 1.0))));
            }
            done += BATCH;
        }
        (start, done, Instant::now())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = workers.into_iter().map(|worker| worker.join().expect("no case panics"));
        let all: Vec<_> = joined.collect();
        let start = all.iter().map(|(start, ..)| *start).min().expect("a thread");
        let end = all.iter().map(|(.., end)| *end).max().expect("a thread");
        all.iter().map(|(_, done, _)| f64::from(*done)).sum::<f64>() / (end - start).as_secs_f64()
    })
}
