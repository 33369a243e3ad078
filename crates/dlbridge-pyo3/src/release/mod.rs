//! Owners whose drop may need the interpreter. Dropping one never waits for the interpreter.
//! Rust memory does not belong here: it is freed immediately, on any thread.
//! Invariant: each value is released once, on an attached thread, or leaked; a raised
//! exception is neither cleared nor replaced.
//!
//! - **Attached** threads release immediately.
//! - **Detached** threads put the value into a queue. It is emptied by a pending call of the
//!   interpreter, or by the next import, export or drop on an attached thread. So a thread that
//!   holds the GIL can join one that drops a tensor, and a tensor can be dropped under a lock that
//!   a thread with the GIL waits for.
//! - **A chain** of owners (a tensor over an object over a tensor ...) is released in a loop from
//!   a depth of 16 on, so that its length is not limited by the stack.
//! - **While the interpreter ends**, producers' tensors are leaked, as NumPy leaks its arrays: a
//!   deleter may be Python code that is gone. **Afterwards**, everything that needs the interpreter
//!   is leaked. The system frees the memory with the process.

mod ending;
mod later;
mod nested;
mod queue;

use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::ffi::{Binding, on_unwind};
use dlbridge::{ArcTensor, Tensor};
use pyo3::prelude::*;

use crate::interpreter::{attached, check_ended};
pub(crate) use nested::drain;
use nested::run;
pub(crate) use queue::NeedsInterpreter;
use queue::{Pass, Passed};

impl NeedsInterpreter for Tensor {
    #[inline]
    fn release(self, _: Python<'_>) {
        if ending::is_running() { drop(self) } else { std::mem::forget(self) }
    }
}

/// Owns a value that needs the interpreter, and can be dropped on any thread. It is the owner of a
/// tensor over a Python object's memory.
pub(crate) type Owner<T> = Passed<T, Released>;

/// Passes a value to [`release`].
pub(crate) struct Released;

impl<T: NeedsInterpreter> Pass<T> for Released {
    #[inline]
    fn pass(value: T) {
        release(value);
    }
}

impl<T: NeedsInterpreter> Owner<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        prepare();
        Self::of(value)
    }
}

/// The tensor of a Python object.
///
/// Objects can be freed while an exception is set, and the deleter of a tensor that Rust code
/// imported from a raw pointer may be Python code. So it is released with the same care as an
/// imported tensor.
pub(crate) type ObjectTensor = Passed<ArcTensor, ReleasedIfForeign>;

/// Passes a tensor of another library to [`release`].
pub(crate) struct ReleasedIfForeign;

impl Pass<ArcTensor> for ReleasedIfForeign {
    #[inline]
    fn pass(tensor: ArcTensor) {
        if dlbridge::ffi::is_foreign(&tensor) {
            release(Tensor::from(tensor));
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
        None => later::put_off(value),
    }
}

/// The rules for dropping tensors of other producers.
static BINDING: Binding = Binding { may_delete, release: |tensor| release(Tensor::from(tensor)) };

/// Called before the first import.
pub(crate) fn binding() -> &'static Binding {
    prepare();
    &BINDING
}

/// Whether this thread is attached, and no other condition delays a release.
fn may_delete() -> bool {
    attached().is_some() && ending::is_running() && queue::is_empty()
}

/// Whether the exit handler was registered, or is being registered.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Prepares for the first owner, which runs Python code once: called before a descriptor is read that
/// such code could free.
#[inline]
pub(crate) fn prepare() {
    if !IS_PREPARED.load(Ordering::Relaxed) {
        prepare_now();
    }
}

#[cold]
fn prepare_now() {
    on_unwind(check_ended);
    if let Some(py) = attached() {
        if !IS_PREPARED.swap(true, Ordering::Relaxed) {
            ending::prepare(py);
        }
    }
}
