//! Determines whether this thread is attached to the interpreter, without waiting.
//! Invariant: never true for a detached thread; false if Python does not provide the answer.
//!
//! `dlbridge::protocol::attached` chooses the functions that tell it. PyO3 counts only the threads that it attached itself, and misses those on which Python frees an array, which
//! calls a deleter of this library.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use dlbridge::protocol::attached::{Attachment, version};
use pyo3::ffi;
use pyo3::prelude::*;

use super::ending;

/// A function that returns a state of a thread.
type State = unsafe extern "C" fn() -> *mut c_void;

/// The functions of the Python in this process; `None` for one that lacks them.
static ATTACHMENT: OnceLock<Option<Attachment<State>>> = OnceLock::new();

/// Finds the functions. First called on an attached thread, since the library loader has locks; that
/// call runs Python code.
#[inline]
pub(crate) fn prepare() {
    if ATTACHMENT.get().is_none() {
        prepare_now();
    }
}

#[cold]
fn prepare_now() {
    if let Some(py) = attached() {
        ending::prepare(py);
    }
}

/// The token of this thread, if it is attached.
#[inline]
pub(super) fn attached<'py>() -> Option<Python<'py>> {
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
