//! Queues values for a thread that is attached.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use super::ending;
use super::nested::drain;
use super::queue::{NeedsInterpreter, push};
use crate::interpreter::add_pending;

/// Whether a pending call that empties the queue is requested.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Queues a value for an attached thread, and requests a pending call. Without an interpreter the
/// value is leaked.
#[cold]
#[inline(never)]
pub(super) fn put_off<T: NeedsInterpreter>(value: T) {
    if !ending::is_running() {
        std::mem::forget(value);
        return;
    }
    push(value);
    if CALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    if ending::before(|| add_pending(&ON_PENDING)) != Some(true) {
        // No room: the next value asks again, and the next call of this library looks itself.
        CALLED.store(false, Ordering::Release);
    }
}

/// The pending call.
static ON_PENDING: fn(Python<'_>) = |py| {
    // What is put off from now on asks for another call; what was before is seen below.
    CALLED.swap(false, Ordering::AcqRel);
    drain(py);
};
