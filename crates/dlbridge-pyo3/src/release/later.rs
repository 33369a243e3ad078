//! Queues values for a thread that is attached.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::ending;
use super::nested::drain;
use super::queue::{NeedsInterpreter, push};

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
    // SAFETY: may be called by any thread while there is an interpreter (F5).
    let call = || unsafe { ffi::Py_AddPendingCall(Some(on_pending), ptr::null_mut()) };
    if ending::before(call) != Some(0) {
        // No room: the next value asks again, and the next call of this library looks itself.
        CALLED.store(false, Ordering::Release);
    }
}

/// The pending call, on the main thread.
extern "C" fn on_pending(_: *mut c_void) -> c_int {
    // What is put off from now on asks for another call; what was before is seen below.
    CALLED.swap(false, Ordering::AcqRel);
    // SAFETY: pending calls are made by a thread that is attached (F1).
    drain(unsafe { Python::assume_attached() });
    0
}
