//! Owners whose drop may need the interpreter. Dropping one never waits for the interpreter.
//! Rust memory does not belong here: it is freed immediately, on any thread.
//! Invariant: each value is released once, on an attached thread, or leaked; a raised
//! exception is neither cleared nor replaced. Detached threads request no pending call after the exit handlers
//! have run.
//!
//! - **Attached** threads release immediately.
//! - **Detached** threads put the value into a queue. It is emptied by a pending call of the
//!   interpreter, or by the next import, export or drop on an attached thread. So a thread that
//!   holds the GIL can join one that drops a tensor, and a tensor can be dropped under a lock that
//!   a thread with the GIL waits for.
//! - **A chain** of owners (a tensor over an object over a tensor ...) is released in a loop
//!   ([`in_turn`]), so that its length is not limited by the stack.
//! - **While the interpreter ends**, producers' tensors are leaked, as NumPy leaks its arrays: a
//!   deleter may be Python code that is gone. **Afterwards**, everything that needs the interpreter
//!   is leaked. The system frees the memory with the process.

#![allow(unsafe_code, reason = "a value that is moved out of a drop")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use dlbridge::ffi::{
    Binding, has_queued_releases, in_turn, is_foreign, on_unwind, queue_release,
    run_queued_releases,
};
use dlbridge::{ArcTensor, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};

use crate::error::is_refusal;
use crate::interpreter::head::has_other_references;
use crate::interpreter::{self, add_pending, attached, check_ended, is_initialized, undisturbed};

/// The tensor of a Python object.
pub(crate) type ObjectTensor = Owner<ArcTensor>;

/// A value that only an attached thread may release. It is never dropped, only released or leaked.
pub(crate) trait NeedsInterpreter: Send + 'static {
    /// Releases the value. It must not panic, and may run Python code.
    fn release(self, py: Python<'_>);

    /// Whether the release may run code: releases nest, and exceptions are set.
    #[inline]
    fn runs_code(&self, _: Python<'_>) -> bool {
        true
    }

    /// Whether this value needs the interpreter. Without need, it is dropped at once, on any thread.
    #[inline]
    fn is_needed(&self) -> bool {
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

impl NeedsInterpreter for Tensor {
    #[inline]
    fn release(self, _: Python<'_>) {
        if is_running() { drop(self) } else { std::mem::forget(self) }
    }
}

/// The tensor of a Python object.
///
/// Objects can be freed while an exception is set, and the deleter of a tensor that Rust code
/// imported from a raw pointer may be Python code. So it is released with the same care as an
/// imported tensor.
impl NeedsInterpreter for ArcTensor {
    #[inline]
    fn release(self, py: Python<'_>) {
        Tensor::from(self).release(py);
    }

    #[inline]
    fn is_needed(&self) -> bool {
        is_foreign(self)
    }
}

/// Owns a value that needs the interpreter, and can be dropped on any thread. It is the owner of a
/// tensor over a Python object's memory.
pub(crate) struct Owner<T: NeedsInterpreter>(ManuallyDrop<T>);

impl<T: NeedsInterpreter> Owner<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: NeedsInterpreter> Deref for Owner<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: NeedsInterpreter + fmt::Debug> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: NeedsInterpreter> Drop for Owner<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again (R7).
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        if value.is_needed() {
            release(value);
        }
    }
}

/// Releases a value immediately if this thread is attached, otherwise later on one that is.
#[inline]
fn release<T: NeedsInterpreter>(value: T) {
    match attached() {
        Some(py) => {
            if value.runs_code(py) {
                run(py, value);
            } else {
                value.release(py);
            }
            drain(py);
        }
        None => put_off(value),
    }
}

/// Releases a value, possibly inside other releases.
#[inline]
fn run<T: NeedsInterpreter>(py: Python<'_>, value: T) {
    in_turn(
        value,
        |value| undisturbed(py, || value.release(py)),
        |value| match attached() {
            Some(py) => undisturbed(py, || value.release(py)),
            // The release around it was on a thread that was not attached yet.
            None => put_off(value),
        },
    );
}

/// The rules for dropping tensors of other producers.
static BINDING: Binding = Binding { may_delete, release: |tensor| release(Tensor::from(tensor)) };

pub(crate) fn binding() -> &'static Binding {
    &BINDING
}

/// Whether this thread is attached, and no other condition delays a release.
fn may_delete() -> bool {
    attached().is_some() && is_running() && !has_queued_releases()
}

/// Whether the exit handler was registered, or is being registered.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Whether there is nothing to do for a new owner.
#[inline]
pub(crate) fn is_ready() -> bool {
    IS_PREPARED.load(Ordering::Relaxed) && !has_queued_releases()
}

/// Prepares for the first owner, which runs Python code once, and releases what waits.
///
/// # Errors
///
/// An exception that says nothing of the interpreter, such as an interrupt in the import of `atexit`. The next call
/// prepares then.
pub(crate) fn get_ready(py: Python<'_>) -> PyResult<()> {
    drain(py);
    on_unwind(check_ended);
    if IS_PREPARED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    match register(py) {
        Ok(()) => MAY_END.store(false, Ordering::SeqCst),
        // Without an exit handler, `is_running` asks each time.
        Err(error) if is_refusal(py, &error) => {}
        Err(error) => {
            IS_PREPARED.store(false, Ordering::Relaxed);
            return Err(error);
        }
    }
    Ok(())
}

/// Releases the queued values, which may run Python code. One comparison if the queue is empty.
#[inline]
pub(crate) fn drain(_: Python<'_>) {
    if has_queued_releases() {
        run_queued_releases();
    }
}

/// Whether a pending call that empties the queue is requested.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Queues a value for an attached thread, and requests a pending call. Without an interpreter the
/// value is leaked.
#[cold]
#[inline(never)]
fn put_off<T: NeedsInterpreter>(value: T) {
    if !is_running() {
        std::mem::forget(value);
        return;
    }
    queue_release(|| match attached() {
        Some(py) => run(py, value),
        None => put_off(value),
    });
    if CALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    if before_end(|| add_pending(&ON_PENDING)) != Some(true) {
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

/// Whether the exit handlers may have run.
static MAY_END: AtomicBool = AtomicBool::new(true);

/// The number of threads in [`before_end`].
static CALLING: AtomicUsize = AtomicUsize::new(0);

/// Registers [`on_exit`] to run before the interpreter ends.
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
fn before_end<R>(call: impl FnOnce() -> R) -> Option<R> {
    CALLING.fetch_add(1, Ordering::SeqCst);
    let result = (!MAY_END.load(Ordering::SeqCst)).then(call);
    CALLING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Whether there is an interpreter that is not ending. While it ends, Python code still runs, but
/// modules that a producer's deleter needs may be gone.
#[inline]
fn is_running() -> bool {
    !MAY_END.load(Ordering::Relaxed) || is_initialized()
}
