//! Runs deleters that may run Python code.
//! What they release belongs to `handle` and `queue`.
//! Invariant: an exception that is set stays set, and no deleter leaves one.

use std::mem::ManuallyDrop;

use super::api::{self, Api, foreign};
use super::attached::{Python, is_running};
use super::exception::Exception;

/// Runs the deleter of a Python object's tensor, on a thread that is attached for it. Once Python is
/// being shut down, what the deleter would touch may be freed: a thread that is not attached leaks the
/// tensor then.
///
/// CPython may end the thread while it waits for the GIL (`Api::attach`): `deleter` must have nothing
/// to drop.
pub(crate) fn release(deleter: impl FnOnce()) {
    let Ok(api) = api::get() else { return };
    if !is_running(api) {
        return;
    }
    if api.is_attached() {
        return Python::of(api).undisturbed(deleter);
    }
    if api.is_finalizing() {
        return;
    }
    // SAFETY: Python runs, and is not being shut down (F1).
    let state = unsafe { api.attach() };
    Python::of(api).undisturbed(deleter);
    // SAFETY: the result of the call above, on the same thread (F1).
    unsafe { api.PyGILState_Release(state) };
}

/// The same below frames of Rust that drop values: a thread that CPython ends stops here.
pub(crate) fn release_nested(deleter: impl FnOnce()) {
    foreign(|| release(deleter));
}

/// Runs deleters, if this thread may: no thread that holds the GIL can be waiting for it.
pub(crate) fn drain(deleters: impl FnOnce() -> usize) -> usize {
    let running = api::get().ok().filter(|api| is_running(api));
    match running {
        None => deleters(),
        Some(_) => Python::attached().map_or(0, |python| python.undisturbed(deleters)),
    }
}

/// Runs code that may run Python code. Python is not looked for: in a process without one, that would
/// take longer than the rest of a release.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    match api::found() {
        Some(api) if is_running(api) && api.is_attached() => Python::of(api).undisturbed(work),
        _ => work(),
    }
}

impl Python {
    /// The same on a thread that is attached.
    pub(super) fn undisturbed<T>(self, work: impl FnOnce() -> T) -> T {
        // Not dropped if CPython ends the thread in `work`: that needs the GIL.
        let exception = ManuallyDrop::new(Exception::pending(self));
        let result = work();
        report(self.api);
        if let Some(exception) = ManuallyDrop::into_inner(exception) {
            exception.restore();
        }
        result
    }
}

/// Tells Python's hook of an exception that a deleter left.
fn report(api: &Api) {
    // SAFETY: attached; null if no exception is set (F1).
    if !unsafe { api.PyErr_Occurred() }.is_null() {
        // SAFETY: attached; there is no object to name (F1).
        unsafe { api.PyErr_WriteUnraisable(std::ptr::null_mut()) };
    }
}
