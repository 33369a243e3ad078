//! Dropping what needs the interpreter, on any thread, without ever waiting for the interpreter.
//! Memory of Rust does not belong here: it is freed at once, wherever it is dropped.
//! Invariant: each value is released once, on a thread that is attached, or left alone for ever; no
//! exception that is on its way is seen or lost.
//!
//! - **Attached** threads release at once.
//! - **Other** threads put the value into a queue. The interpreter empties it by a pending call, or
//!   the next import, export or drop of this library does on an attached thread. So a thread that
//!   holds the GIL may join one that drops a tensor, and a tensor may be dropped under a lock that
//!   a thread with the GIL waits for.
//! - **A chain** of owners (a tensor over an object over a tensor ...) is released in a loop from
//!   a depth of 16 on, so that its length does not count.
//! - **While the interpreter ends** a producer's tensor is left alone, as NumPy leaves its arrays:
//!   its deleter may be Python code that is gone. So is everything that needs the interpreter
//!   **afterwards**. The memory goes with the process.

mod attached;
mod ending;
mod later;
mod nested;
mod queue;

use std::mem::ManuallyDrop;
use std::ops::Deref;

use dlbridge::ffi::{self as core, Binding};
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{Error, SharedTensor, Tensor};
use pyo3::prelude::*;

use attached::attached;
use nested::run;
pub(crate) use nested::{drain, undisturbed};
pub(crate) use queue::NeedsInterpreter;

impl NeedsInterpreter for Tensor {
    #[inline]
    fn release(self, _: Python<'_>) {
        if ending::is_running() { drop(self) } else { std::mem::forget(self) }
    }
}

/// Owns a value that needs the interpreter, and may be dropped on any thread: the owner of a tensor
/// over a Python object's memory.
pub(crate) struct Owner<T: NeedsInterpreter>(ManuallyDrop<T>);

impl<T: NeedsInterpreter> Owner<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        attached::prepare();
        Self(ManuallyDrop::new(value))
    }
}

impl<T: NeedsInterpreter> Drop for Owner<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again (R7).
        release(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// The tensor of a Python object.
///
/// Objects go while exceptions are on their way, and the deleter of a tensor that Rust code
/// imported by hand may be Python code: it is released with the same care as one that Python gave.
#[derive(Debug)]
pub(crate) struct ObjectTensor(ManuallyDrop<SharedTensor>);

impl ObjectTensor {
    #[inline]
    pub(crate) fn new(tensor: SharedTensor) -> Self {
        Self(ManuallyDrop::new(tensor))
    }
}

impl Deref for ObjectTensor {
    type Target = SharedTensor;

    #[inline]
    fn deref(&self) -> &SharedTensor {
        &self.0
    }
}

impl Drop for ObjectTensor {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again (R7).
        let tensor = unsafe { ManuallyDrop::take(&mut self.0) };
        if tensor.is_foreign() {
            release(Tensor::from(tensor));
        }
    }
}

/// Takes over a producer's tensor as [`Tensor::from_raw`] does. Its deleter, which may need the
/// interpreter (NumPy's does), is called as this module says.
///
/// # Safety
///
/// As for [`Tensor::from_raw`].
#[inline(always)]
pub(crate) unsafe fn adopt(tensor: *mut DLManagedTensorVersioned) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { try_adopt(tensor) }.inspect_err(|_| {
        // SAFETY: the caller gave it up, and validation rejects it (R3).
        unsafe { Tensor::release_raw(tensor) };
    })
}

/// As [`adopt`], but a tensor that validation rejects stays the caller's.
///
/// # Safety
///
/// As for [`Tensor::try_from_raw`].
#[inline(always)]
pub(crate) unsafe fn try_adopt(tensor: *mut DLManagedTensorVersioned) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { core::try_from_raw_bound(tensor, binding) }
}

/// As [`try_adopt`], for DLPack before 1.0.
///
/// # Safety
///
/// As for [`Tensor::try_from_raw`].
#[inline]
pub(crate) unsafe fn try_adopt_legacy(tensor: *mut DLManagedTensor) -> Result<Tensor, Error> {
    // SAFETY: the caller's duty.
    unsafe { core::try_from_raw_bound(tensor, binding) }
}

/// Releases a value here and now if this thread is attached, otherwise as soon as one is.
#[inline]
fn release<T: NeedsInterpreter>(value: T) {
    match attached() {
        Some(py) => {
            run(py, value);
            drain(py);
        }
        None => later::put_off(value),
    }
}

/// How tensors that [`adopt`] took are dropped.
static BINDING: Binding = Binding { may_delete, release: |tensor| release(Tensor::from(tensor)) };

/// Called before the first tensor is taken.
fn binding() -> &'static Binding {
    attached::prepare();
    &BINDING
}

/// Whether this thread is attached, and there is nothing else to think of.
fn may_delete() -> bool {
    attached().is_some() && ending::is_running() && queue::is_empty()
}
