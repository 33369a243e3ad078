//! Calls of the interpreter that releases need: whether this thread is attached, a raised exception,
//! pending calls.
//! Invariant: `attached` never returns a token on a detached thread; none if Python does not provide the
//! answer. No function waits.
//!
//! `dlbridge::protocol::attached` chooses the functions that tell whether this thread is attached. PyO3
//! counts only the threads that it attached itself, and misses those on which Python frees an array,
//! which calls a deleter of this library.
#![allow(unsafe_code, reason = "calls of the interpreter that releases need")]

use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use dlbridge::protocol::attached::{Attachment, version};
use pyo3::ffi;
use pyo3::prelude::*;

/// A function that returns a state of a thread.
type State = unsafe extern "C" fn() -> *mut c_void;

/// The functions of the Python in this process; `None` for one that lacks them.
static ATTACHMENT: OnceLock<Option<Attachment<State>>> = OnceLock::new();

/// Finds the functions, if that was not done yet. First called on an attached thread, since the library
/// loader has locks.
#[inline]
pub(super) fn is_prepared() -> bool {
    ATTACHMENT.get().is_some()
}

/// The token of this thread, if it is attached.
#[inline]
pub(crate) fn attached<'py>() -> Option<Python<'py>> {
    let attachment = (*ATTACHMENT.get_or_init(find))?;
    // SAFETY: any thread may call them, attached or not (F5).
    let is_attached = attachment.is_attached(|state| unsafe { state() });
    // SAFETY: attached, as Python itself says (F1).
    is_attached.then(|| unsafe { Python::assume_attached() })
}

#[cold]
fn find() -> Option<Attachment<State>> {
    // SAFETY: may be called at any time (F1).
    let text = unsafe { ffi::Py_GetVersion() };
    // SAFETY: a static text (F2).
    let text = unsafe { CStr::from_ptr(text) };
    let (_, minor) = version(&text.to_string_lossy());
    Attachment::find(minor, find_by_name).ok()
}

/// A function of Python. The limited API has `PyThreadState_GetDict`.
fn find_by_name(name: &'static CStr) -> Option<State> {
    match symbol(name) {
        None if name == c"PyThreadState_GetDict" => Some(dict),
        function => function,
    }
}

/// The dict of this thread's state, as an address.
unsafe extern "C" fn dict() -> *mut c_void {
    // SAFETY: since 3.12 any thread may call it (F5).
    unsafe { ffi::PyThreadState_GetDict() }.cast()
}

#[cfg(unix)]
fn symbol(name: &CStr) -> Option<State> {
    let library = libloading::os::unix::Library::this();
    // SAFETY: all of them have this type (F5).
    let function = unsafe { library.get::<State>(name.to_bytes_with_nul()) };
    function.ok().map(|function| *function)
}

#[cfg(not(unix))]
fn symbol(_: &CStr) -> Option<State> {
    None
}

/// Runs `work`, which may run Python code, and preserves a raised exception. An exception of `work`
/// is not left set.
#[inline]
pub(crate) fn undisturbed(py: Python<'_>, work: impl FnOnce()) {
    // SAFETY: attached (F1).
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        return beside_exception(py, work);
    }
    work();
    // SAFETY: attached (F1).
    if !unsafe { ffi::PyErr_Occurred() }.is_null() {
        // SAFETY: attached (F1).
        unsafe { ffi::PyErr_Clear() };
    }
}

#[cold]
#[allow(deprecated, reason = "what takes their place is in no limited API before 3.12")]
fn beside_exception(_: Python<'_>, work: impl FnOnce()) {
    let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    // SAFETY: attached; the places are ours (F1).
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace) };
    work();
    // SAFETY: attached; what was fetched above (F1).
    unsafe { ffi::PyErr_Restore(kind, value, trace) };
}

/// Whether there is an interpreter.
pub(super) fn is_initialized() -> bool {
    // SAFETY: may be called at any time, on any thread (F5).
    unsafe { ffi::Py_IsInitialized() != 0 }
}

/// Asks the main thread to call `work` soon; `false` if there is no room.
///
/// Called while there is an interpreter that does not end.
pub(super) fn add_pending(work: &'static fn(Python<'_>)) -> bool {
    let context = ptr::from_ref(work).cast_mut().cast();
    // SAFETY: may be called by any thread while there is an interpreter (F5).
    unsafe { ffi::Py_AddPendingCall(Some(on_pending), context) == 0 }
}

/// A pending call, on the main thread.
extern "C" fn on_pending(work: *mut c_void) -> c_int {
    // SAFETY: the function that `add_pending` was given, which is static (F2).
    let work = unsafe { &*work.cast::<fn(Python<'_>)>() };
    // SAFETY: pending calls are made by a thread that is attached (F1).
    work(unsafe { Python::assume_attached() });
    0
}
