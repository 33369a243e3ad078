//! The queue of values that are released later.
//! Deciding what goes there belongs to the parent module.
//! Invariant: no thread ever waits here, and a value is in one list at most. There is no lock: one
//! that another thread holds would stay locked in a process that is forked then.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::{NeedsInterpreter, ending, is_full, run};

/// Releases a value.
type Work = Box<dyn FnOnce(Python<'_>) + Send>;

/// A value that waits, and the one that came before it.
struct Node {
    work: Work,
    next: *mut Node,
}

impl NeedsInterpreter for Work {
    fn release(self, py: Python<'_>) {
        self(py);
    }
}

/// The value that came last.
static WAITING: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// Whether the interpreter has been asked to empty the queue.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Leaves a value to the next thread that looks into the queue.
pub(super) fn push<T: NeedsInterpreter>(value: T) {
    let work: Work = Box::new(|py| value.release(py));
    let node = Box::into_raw(Box::new(Node { work, next: ptr::null_mut() }));
    let mut next = WAITING.load(Ordering::Relaxed);
    loop {
        // SAFETY: made just now, and no other thread has it before it is in the queue (R7).
        unsafe { (*node).next = next };
        match WAITING.compare_exchange_weak(next, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => next = found,
        }
    }
}

/// Leaves a value to a thread that is attached, and asks the interpreter for one; for ever if there
/// is no interpreter any more.
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

/// Whether nothing waits.
#[inline]
pub(super) fn is_empty() -> bool {
    WAITING.load(Ordering::Relaxed).is_null()
}

/// Releases what waits, which may run Python code. One comparison if nothing does.
#[inline]
pub(crate) fn drain(py: Python<'_>) {
    if !is_empty() {
        release_all(py);
    }
}

#[cold]
#[inline(never)]
fn release_all(py: Python<'_>) {
    // At the full depth, values would come back to the queue: a release around this one empties it.
    while !is_full() {
        let mut list = in_order(WAITING.swap(ptr::null_mut(), Ordering::AcqRel));
        if list.is_null() {
            return;
        }
        while !list.is_null() {
            // SAFETY: made by `push`, and in this list alone (R7).
            let Node { work, next } = *unsafe { Box::from_raw(list) };
            list = next;
            run(py, work);
        }
    }
}

/// A list the other way round: the value that came first is the first.
fn in_order(mut list: *mut Node) -> *mut Node {
    let mut turned = ptr::null_mut();
    while !list.is_null() {
        // SAFETY: made by `push`, and in this list alone (R7).
        let next = unsafe { std::mem::replace(&mut (*list).next, turned) };
        turned = list;
        list = next;
    }
    turned
}
