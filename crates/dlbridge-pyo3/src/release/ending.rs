//! Stops calls into an interpreter that ends.
//! Releasing does not belong here.
//! Invariant: detached threads request no pending call after the exit handlers have run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::nested::drain;
use crate::interpreter::is_initialized;

/// Whether the exit handlers may have run.
static MAY_END: AtomicBool = AtomicBool::new(true);

/// The number of threads in [`before`].
static CALLING: AtomicUsize = AtomicUsize::new(0);

/// Registers [`on_exit`] to run before the interpreter ends.
pub(super) fn prepare(py: Python<'_>) {
    // Where there is no exit handler, `is_running` is asked each time.
    if register(py).is_ok() {
        MAY_END.store(false, Ordering::SeqCst);
    }
}

fn register(py: Python<'_>) -> PyResult<()> {
    let handler = PyCFunction::new_closure(py, None, None, on_exit)?;
    py.import("atexit")?.call_method1("register", (handler,))?;
    Ok(())
}

/// Empties the queue, and stops requests of detached threads.
fn on_exit(arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>) {
    MAY_END.store(true, Ordering::SeqCst);
    // They wait for nothing there that this thread has. After a fork they may be in another process.
    let deadline = Instant::now() + Duration::from_millis(100);
    while CALLING.load(Ordering::SeqCst) != 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    drain(arguments.py());
}

/// Calls a Python function on a detached thread, unless the interpreter may end during the call.
pub(super) fn before<R>(call: impl FnOnce() -> R) -> Option<R> {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let result = (!MAY_END.load(Ordering::SeqCst)).then(call);
    CALLING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether there is an interpreter that is not ending. While it ends, Python code still runs, but
/// modules that a producer's deleter needs may be gone.
#[inline]
pub(super) fn is_running() -> bool {
    !MAY_END.load(Ordering::Relaxed) || is_initialized()
}
