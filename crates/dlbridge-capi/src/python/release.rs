//! Runs deleters that may run Python code.
//! Counting them at exit belongs to `ending`. Those of other interpreters are queued in the core.
//! Invariant: an exception that is set stays set, and no deleter leaves one.

use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use dlbridge::Tensor;
use dlbridge::ffi::{has_queued_releases, queue_release, run_queued_releases};

use super::api::{self, Api, METH_NOARGS, Method, Pointer};
use super::attached::{Python, is_running};
use super::ending;
use super::exception::Exception;
use crate::entry::contained;
use crate::error::Result;

/// Releases the tensor of a Python object, on a thread that is attached for it.
///
/// Once the exit handlers have run, a thread that is not attached leaks the tensor: it would wait for the
/// GIL while the interpreter ends. A thread that is in another interpreter leaves it to the next call that
/// is in the right one.
pub(crate) fn release(tensor: Tensor) {
    if let Some(leaked) = try_release(tensor) {
        mem::forget(leaked);
    }
}

/// Gives back the tensor that cannot be released any more.
fn try_release(tensor: Tensor) -> Option<Tensor> {
    let Some(api) = api::get().ok().filter(|api| is_running(api)) else { return Some(tensor) };
    if api.is_attached() {
        release_at_home(Python::of(api), tensor);
    } else if api.may_be_elsewhere() {
        queue_release(|| drop(tensor));
    } else {
        let mut tensor = Some(tensor);
        ending::enter(|| {
            if !api.is_finalizing() {
                // SAFETY: Python runs, and its exit waits for this thread (F1).
                let state = unsafe { api.PyGILState_Ensure() };
                tensor
                    .take()
                    .into_iter()
                    .for_each(|tensor| release_at_home(Python::of(api), tensor));
                // SAFETY: the result of the call above, on the same thread (F1).
                unsafe { api.PyGILState_Release(state) };
            }
        });
        return tensor;
    }
    None
}

/// Releases a tensor in the interpreter of its object, or leaves it to that.
fn release_at_home(python: Python, tensor: Tensor) {
    if python.is_home() {
        python.undisturbed(|| drop(tensor));
    } else {
        queue_release(|| drop(tensor));
    }
}

/// Finds Python, and checks that this thread may use it. Releases the tensors that waited for that.
#[inline]
pub(crate) fn attached() -> Result<Python> {
    let python = Python::attached()?;
    if !IS_PREPARED.load(Ordering::Relaxed) {
        prepare(python);
    }
    if has_queued_releases() {
        python.undisturbed(run_queued_releases);
    }
    Ok(python)
}

/// Whether the exit handler was registered, or cannot be.
static IS_PREPARED: AtomicBool = AtomicBool::new(false);

/// Registers [`on_exit`]. Where that fails, threads that wait at exit stop, and the rest works.
#[cold]
fn prepare(python: Python) {
    if !IS_PREPARED.swap(true, Ordering::Relaxed) {
        python.undisturbed(|| _ = register(python));
    }
}

fn register(python: Python) -> Result<(), Exception> {
    let (method, none) = (&raw const ON_EXIT, ptr::null_mut());
    // SAFETY: attached; a static table (F1, F6).
    let function = unsafe { python.api.PyCFunction_NewEx(method, none, none) };
    // SAFETY: a new reference or null (F3).
    let function = unsafe { python.own(function) }?;
    // SAFETY: attached; a static text (F1, F2).
    let module = unsafe { python.api.PyImport_ImportModule(c"atexit".as_ptr()) };
    // SAFETY: a new reference or null (F3).
    let module = unsafe { python.own(module) }?;
    let name = python.intern(c"register")?;
    let arguments = [module.as_ptr(), function.as_ptr()];
    // SAFETY: two positional arguments, alive, and no keywords (F1, F2).
    let answer =
        unsafe { python.api.PyObject_VectorcallMethod(name.as_ptr(), arguments.as_ptr(), 2, none) };
    // SAFETY: a new reference or null (F3).
    unsafe { python.own(answer) }.map(drop)
}

/// A definition that Python keeps.
static ON_EXIT: Method = Method {
    name: c"on_exit".as_ptr(),
    function: on_exit as unsafe extern "C" fn(Pointer, Pointer) -> Pointer as *const _,
    flags: METH_NOARGS,
    doc: c"Waits for the releases of other threads.".as_ptr(),
};

/// Ends the releases of detached threads, while the interpreter still runs.
unsafe extern "C" fn on_exit(_: Pointer, _: Pointer) -> Pointer {
    // SAFETY: Python calls its exit handlers (F1).
    let Some(python) = (unsafe { Python::in_callback() }) else { return ptr::null_mut() };
    contained((), || {
        ending::close();
        // SAFETY: attached (F1).
        let state = unsafe { python.api.PyEval_SaveThread() };
        ending::wait();
        // SAFETY: the state of this thread, which the call above detached; the interpreter does not end
        // before its exit handlers return (F1).
        unsafe { python.api.PyEval_RestoreThread(state) };
        python.undisturbed(run_queued_releases);
    });
    // SAFETY: `None` lives as long as Python (F6).
    let none = unsafe { python.borrow(python.api.none) };
    none.map_or(ptr::null_mut(), super::attached::Object::into_raw)
}

/// Runs deleters, if this thread may: no thread that holds the GIL can be waiting for it.
pub(crate) fn drain(deleters: impl FnOnce() -> usize) -> usize {
    let running = api::get().ok().filter(|api| is_running(api));
    match running {
        None => deleters(),
        Some(_) => attached().map_or(0, |python| python.undisturbed(deleters)),
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
        unsafe { api.PyErr_WriteUnraisable(ptr::null_mut()) };
    }
}
