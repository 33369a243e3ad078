//! The table of borrows of `dlbridge-pyo3` under loom: every order in which two or three threads can borrow
//! and end, with the values that the memory model of C11 lets them read. The files are the crate's own.
//!
//! `RUSTFLAGS="--cfg loom" cargo run --release --package dlbridge-loom`, or `cargo xtask sanitize loom`. Each run
//! looks at the same executions, because the number of forced switches of threads is bounded.
#![allow(unsafe_code, reason = "the files of the crate have it")]

#[cfg(loom)]
mod model;

#[cfg(loom)]
fn main() {
    model::run();
}

#[cfg(not(loom))]
fn main() {
    eprintln!("for `cargo xtask sanitize loom`, which sets `--cfg loom`");
}
