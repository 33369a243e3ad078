//! The queue of values that were dropped on threads which were not attached.
//! Deciding what goes there belongs to the parent module.
//! Invariant: no thread ever waits here, and a value is in one list at most. There is no lock: one
//! that another thread holds would stay locked in a process that is forked then.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

use super::{NeedsInterpreter, is_running, run};

/// Releases a value.
type Work = Box<dyn FnOnce(Python<'_>) + Send>;

/// A list of values that wait: its first one, or null.
pub(super) type List = *mut Node;

/// A value that waits.
pub(super) struct Node {
    work: Work,
    next: List,
}

impl Node {
    /// A list with one more value.
    pub(super) fn push<T: NeedsInterpreter>(value: T, next: List) -> List {
        Box::into_raw(Box::new(Self { work: Box::new(|py| value.release(py)), next }))
    }

    /// The first value of a list, and the rest. The list is not used any more.
    pub(super) fn pop(list: List) -> Option<(Work, List)> {
        if list.is_null() {
            return None;
        }
        // SAFETY: made by `push`, and in this list alone (R7).
        let Self { work, next } = *unsafe { Box::from_raw(list) };
        Some((work, next))
    }
}

impl NeedsInterpreter for Work {
    fn release(self, py: Python<'_>) {
        self(py);
    }
}

/// The values that were put off, the last one first.
static WAITING: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// Whether the interpreter has been asked to empty the queue.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Leaves a value to a thread that is attached; for ever if there is no interpreter any more.
#[cold]
#[inline(never)]
pub(super) fn put_off<T: NeedsInterpreter>(value: T) {
    if !is_running() {
        std::mem::forget(value);
        return;
    }
    let node = Node::push(value, ptr::null_mut());
    let mut first = WAITING.load(Ordering::Relaxed);
    loop {
        // SAFETY: made just now, and in no list that another thread has (R7).
        unsafe { (*node).next = first };
        match WAITING.compare_exchange_weak(first, node, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break,
            Err(found) => first = found,
        }
    }
    if !CALLED.swap(true, Ordering::AcqRel) {
        // SAFETY: may be called by any thread while there is an interpreter (F5).
        let status = unsafe { ffi::Py_AddPendingCall(Some(on_pending), ptr::null_mut()) };
        if status != 0 {
            // No room: the next value asks again, and the next call of this library looks itself.
            CALLED.store(false, Ordering::Release);
        }
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

/// Releases what waits, which may run Python code. One comparison if nothing does.
#[inline]
pub(crate) fn drain(py: Python<'_>) {
    if !WAITING.load(Ordering::Relaxed).is_null() {
        release_all(py);
    }
}

#[cold]
#[inline(never)]
fn release_all(py: Python<'_>) {
    let mut list = in_order(WAITING.swap(ptr::null_mut(), Ordering::AcqRel));
    while let Some((work, rest)) = Node::pop(list) {
        list = rest;
        run(py, work);
    }
}

/// A list the other way round: the first value that came is the first.
fn in_order(mut list: List) -> List {
    let mut turned = ptr::null_mut();
    while !list.is_null() {
        // SAFETY: made by `push`, and in this list alone (R7).
        let next = unsafe { std::mem::replace(&mut (*list).next, turned) };
        turned = list;
        list = next;
    }
    turned
}
