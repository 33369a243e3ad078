//! Values that are released later: what has one until it is dropped, and their lock-free queue.
//! Deciding what is queued belongs to `mod`.
//! Invariant: no thread waits here, and a value is in at most one list. There is no lock, since a
//! lock that another thread holds during a `fork` would stay locked in the child process.
#![allow(unsafe_code, reason = "a value that is moved out of a drop, and a list without locks")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::prelude::*;

use crate::interpreter;
use crate::interpreter::head::has_other_references;

/// A value that only an attached thread may release. It is never dropped, only released or leaked.
pub(crate) trait NeedsInterpreter: Send + 'static {
    /// Releases the value. It must not panic, and may run Python code.
    fn release(self, py: Python<'_>);

    /// Whether the release may run code: releases nest, and exceptions are set.
    #[inline]
    fn runs_code(&self, _: Python<'_>) -> bool {
        true
    }
}

impl NeedsInterpreter for Py<PyAny> {
    #[inline]
    fn release(self, py: Python<'_>) {
        interpreter::release(self.into_bound(py));
    }

    /// An argument has a reference of its caller's: without this, importing and dropping a NumPy array takes 634
    /// instructions for 602, and writing one in place more than with rust-numpy.
    #[inline]
    fn runs_code(&self, py: Python<'_>) -> bool {
        !has_other_references(self.bind(py))
    }
}

/// Has a value, and passes it on when it is dropped.
pub(crate) struct Passed<T, P: Pass<T>>(ManuallyDrop<T>, PhantomData<fn(P)>);

/// Where a dropped value goes.
pub(crate) trait Pass<T> {
    fn pass(value: T);
}

impl<T, P: Pass<T>> Passed<T, P> {
    #[inline]
    pub(crate) fn of(value: T) -> Self {
        Self(ManuallyDrop::new(value), PhantomData)
    }
}

impl<T, P: Pass<T>> Deref for Passed<T, P> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug, P: Pass<T>> fmt::Debug for Passed<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T, P: Pass<T>> Drop for Passed<T, P> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again (R7).
        P::pass(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// Releases a value.
pub(super) type Work = Box<dyn FnOnce(Python<'_>) + Send>;

/// A queued value, and the value that was queued before it.
struct Node {
    work: Work,
    next: *mut Node,
}

impl NeedsInterpreter for Work {
    fn release(self, py: Python<'_>) {
        self(py);
    }
}

/// The value that was queued last.
static WAITING: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// Queues a value.
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

/// Whether the queue is empty.
#[inline]
pub(super) fn is_empty() -> bool {
    WAITING.load(Ordering::Relaxed).is_null()
}

/// Removes the queued values and returns them, oldest first.
pub(super) fn take_all() -> Taken {
    Taken(in_order(WAITING.swap(ptr::null_mut(), Ordering::AcqRel)))
}

/// A list that one thread has removed from the queue. Values that stay in it are leaked.
pub(super) struct Taken(*mut Node);

impl Taken {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_null()
    }
}

impl Iterator for Taken {
    type Item = Work;

    fn next(&mut self) -> Option<Work> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: made by `push`, and in this list alone (R7).
        let Node { work, next } = *unsafe { Box::from_raw(self.0) };
        self.0 = next;
        Some(work)
    }
}

/// Reverses a list, so that the oldest value is the first.
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
