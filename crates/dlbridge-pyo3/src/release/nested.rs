//! Releases values on an attached thread, where one release may cause others.
//! Invariant: a raised exception is neither cleared nor replaced.

use std::cell::Cell;

use pyo3::prelude::*;

use super::queue::{self, NeedsInterpreter};
use crate::interpreter::undisturbed;

/// The depth from which nested releases run in a loop.
const DEPTH: u32 = 16;

thread_local! {
    /// The depth of nested releases on this thread.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// Whether one more release would nest too deep.
fn is_full() -> bool {
    NESTED.get() >= DEPTH
}

/// Releases a value, possibly inside other releases.
#[inline]
pub(super) fn run<T: NeedsInterpreter>(py: Python<'_>, value: T) {
    NESTED.with(|nested| {
        let depth = nested.get() + 1;
        if depth > DEPTH {
            // The release around this one empties the queue.
            return queue::push(value);
        }
        nested.set(depth);
        undisturbed(py, || value.release(py));
        // Counted down, not restored: Python code may have switched to another stack in between.
        nested.set(nested.get() - 1);
    });
}

/// Releases the queued values, which may run Python code. One comparison if the queue is empty.
#[inline]
pub(crate) fn drain(py: Python<'_>) {
    if !queue::is_empty() {
        release_all(py);
    }
}

#[cold]
#[inline(never)]
fn release_all(py: Python<'_>) {
    // At the full depth, values would come back to the queue: a release around this one empties it.
    while !is_full() {
        let waiting = queue::take_all();
        if waiting.is_empty() {
            return;
        }
        waiting.for_each(|work| run(py, work));
    }
}
