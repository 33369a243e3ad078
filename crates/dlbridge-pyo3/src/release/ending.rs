//! The end of the interpreter: what may still be released, and what must not be called any more.
//! Releasing does not belong here.
//! Invariant: threads that are not attached ask Python for no call once its exit handlers have run.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use super::nested::drain;

/// Whether the exit handlers are not known to be still ahead.
static MAY_END: AtomicBool = AtomicBool::new(true);

/// How many threads are in [`before`].
static CALLING: AtomicUsize = AtomicUsize::new(0);

/// Asks for a call of [`on_exit`] before the interpreter ends.
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

/// Releases what waits, and lets threads that are not attached ask for nothing more.
fn on_exit(arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>) {
    MAY_END.store(true, Ordering::SeqCst);
    // They wait for nothing there that this thread has. After a fork they may be in another process.
    let deadline = Instant::now() + Duration::from_millis(100);
    while CALLING.load(Ordering::SeqCst) != 0 && Instant::now() < deadline {
        std::thread::yield_now();
    }
    drain(arguments.py());
}

/// Calls a function of Python on a thread that is not attached, unless the interpreter may end
/// meanwhile.
pub(super) fn before<R>(call: impl FnOnce() -> R) -> Option<R> {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let result = (!MAY_END.load(Ordering::SeqCst)).then(call);
    CALLING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether there is an interpreter that is not ending. While it ends, Python code runs still, but
/// what a producer's deleter needs may be gone.
#[inline]
pub(super) fn is_running() -> bool {
    // SAFETY: may be called at any time, on any thread (F5).
    !MAY_END.load(Ordering::Relaxed) || unsafe { ffi::Py_IsInitialized() != 0 }
}
