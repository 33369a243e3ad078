//! Calls of foreign code on a thread that Python may end.
//! Invariant: no unwinding of such a thread passes the frames that called `stopped_if_ended`.

use std::hint::black_box;
use std::time::Duration;
use std::{mem, process, thread};

use dlbridge::ffi::Unwinds;
use pyo3::ffi;
use pyo3::prelude::*;

/// Calls foreign code, which is declared as `"C-unwind"`.
///
/// CPython before 3.14 ends a thread by `pthread_exit`, because it wants the GIL of an interpreter that
/// has ended. The unwinding would drop objects without the GIL, and end the process in a `catch_unwind`.
/// Such a thread is kept where it is. Later versions let the thread hang in the same way.
#[inline(always)]
pub(crate) fn stopped_if_ended<R>(call: impl FnOnce() -> R) -> R {
    let ended = Ended;
    let result = call();
    mem::forget(ended);
    result
}

/// Releases an object, which may run Python code.
#[inline]
pub(crate) fn release(object: Bound<'_, PyAny>) {
    // The compiler would see a function that is declared as one that does not unwind.
    let decrease: unsafe extern "C" fn(*mut ffi::PyObject) = black_box(ffi::Py_DecRef);
    let object = object.into_ptr();
    // SAFETY: attached, and a reference that is given up (F1, F3).
    stopped_if_ended(|| unsafe { decrease.unwinding()(object) });
}

/// Dropped only by unwinding.
struct Ended;

impl Drop for Ended {
    #[cold]
    fn drop(&mut self) {
        if !thread::panicking() {
            stop();
        }
    }
}

/// Stops this thread, which foreign code unwinds.
#[cold]
pub(crate) fn stop() {
    // Python says that it has ended a moment after it has.
    thread::sleep(Duration::from_millis(100));
    // SAFETY: may be called at any time, on any thread (F5).
    if unsafe { ffi::Py_IsInitialized() } != 0 {
        // A C++ exception, which a function of C must not throw.
        process::abort();
    }
    loop {
        thread::park();
    }
}
