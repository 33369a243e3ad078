//! Runs Rust code that C calls.
//! Invariant: no panic leaves it. No Python object that it drops stays with PyO3.

use std::any::{Any, TypeId};
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::Tensor;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{Borrowed, PyTypeInfo, ffi};

use crate::ffi::versions::class_name;
use crate::{Error, ExportDlpack, PickleDlpack, Result, TensorObject};

/// Runs `work` as a function of PyO3 runs, which releases a dropped `Py` at once. PyO3 counts only the
/// threads that it attached itself. On others it keeps the object until one of its functions runs
/// there, as this one does first.
#[inline(never)]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    let mut work = Some(work);
    let mut run = || work.take().map(|work| work());
    // PyO3 attaches no thread while the interpreter ends; objects may stay then.
    let result = Python::try_attach(|_| run()).unwrap_or_else(run);
    result.expect("it runs once")
}

/// Runs a function of a class. Returns its result, or `None` with an exception set. A panic becomes a
/// `RuntimeError`, not PyO3's `PanicException`, which `except Exception` does not catch.
///
/// Of the Python objects that `work` drops, those of an error are released here; work that drops
/// others runs as `counted`.
#[inline]
pub(crate) fn guarded<T: PyTypeInfo, R>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R>,
) -> Option<R> {
    let outcome = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return Some(value),
        outcome => outcome,
    };
    counted(|| {
        let error = match outcome {
            Ok(result) => PyErr::from(result.err()?),
            Err(payload) => {
                PyRuntimeError::new_err(panicked(&class_name::<T>(py), "its export", payload))
            }
        };
        error.restore(py);
        None
    })
}

/// Runs a function of a class with an object. Returns its result, or `None` with an exception set.
///
/// # Safety
///
/// The interpreter is attached, and `object` a Python object.
#[inline]
pub(crate) unsafe fn with_object<T: ExportDlpack, R>(
    object: *mut ffi::PyObject,
    work: impl FnOnce(&Bound<'_, T>) -> Result<R>,
) -> Option<R> {
    // SAFETY: the caller's duty.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller's duty.
    let object = unsafe { Borrowed::from_ptr(py, object) };
    let work = || guarded::<T, _>(py, || work(&*object.cast::<T>().map_err(PyErr::from)?));
    // Of this class, no function that succeeds drops an object; those of users' classes may.
    let is_ours = TypeId::of::<T>() == TypeId::of::<TensorObject>();
    if is_ours { work() } else { counted(work) }
}

/// Calls `PickleDlpack::from_tensor`. A panic becomes a `RuntimeError`, as in an export.
pub(crate) fn restore<T: PickleDlpack>(py: Python<'_>, tensor: Tensor) -> Result<T> {
    catch_unwind(AssertUnwindSafe(|| T::from_tensor(tensor))).unwrap_or_else(|payload| {
        let message = panicked(&class_name::<T>(py), "its pickle", payload);
        Err(Error::Python(PyRuntimeError::new_err(message)))
    })
}

/// The message of a panic in a function of a class.
#[cold]
pub(crate) fn panicked(class: &str, function: &str, payload: Box<dyn Any + Send>) -> String {
    let words = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(words), _) => words,
        (_, Some(words)) => &words[..],
        _ => "without words",
    };
    let message = format!("{class}: {function} panicked: {words}");
    // Dropping the payload could panic again.
    std::mem::forget(payload);
    message
}

/// Drops a value, which may own what a user's `Drop` panics in.
pub(crate) fn dropped<T>(value: T) {
    std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(value))));
}
