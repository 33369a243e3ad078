//! Determines whether this thread is attached to the interpreter, without waiting.
//! Invariant: never true for a detached thread; false if Python does not provide the answer.
//!
//! `PyGILState_Check` returns true on every thread once there was a second interpreter. PyO3 counts
//! only the threads that it attached itself, and misses those on which Python frees an array, which
//! calls a deleter of this library.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

use pyo3::ffi::{self, PyThreadState};
use pyo3::prelude::*;

use super::ending;

/// A function that returns the thread state of the attached thread, or null.
type Current = unsafe extern "C" fn() -> *mut c_void;

/// The function of the Python in this process. Found at run time, since the limited API does not
/// have it.
#[derive(Clone, Copy)]
enum Ask {
    /// The function's result is for this thread.
    ThisThread(Current),
    /// The function's result is for the thread that has the GIL, before Python 3.12.
    Process(Current),
    Never,
}

static ASK: OnceLock<Ask> = OnceLock::new();

/// Finds the function. First called on an attached thread, since the library loader has locks; that
/// call runs Python code.
#[inline]
pub(crate) fn prepare() {
    if ASK.get().is_none() {
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
    let is_attached = match *ASK.get_or_init(Ask::find) {
        // SAFETY: may be called by any thread, attached or not (F5).
        Ask::ThisThread(current) => !unsafe { current() }.is_null(),
        // SAFETY: the same.
        Ask::Process(current) => is_own(unsafe { current() }.cast()),
        Ask::Never => false,
    };
    // SAFETY: attached, as Python itself says (F1).
    is_attached.then(|| unsafe { Python::assume_attached() })
}

/// Whether a thread state is that of this thread. It is compared, not read, since another thread
/// may have freed it.
#[inline]
fn is_own(state: *mut PyThreadState) -> bool {
    // SAFETY: may be called by any thread; null before and after the interpreter (F5).
    !state.is_null() && state == unsafe { ffi::PyGILState_GetThisThreadState() }
}

impl Ask {
    #[cold]
    fn find() -> Self {
        let minor = minor_version();
        let name = if minor >= 13 {
            c"PyThreadState_GetUnchecked"
        } else {
            c"_PyThreadState_UncheckedGet"
        };
        match find(name) {
            Some(current) if minor >= 12 => Self::ThisThread(current),
            Some(current) => Self::Process(current),
            // Null for a thread that is not attached, and of the limited API, but slower.
            None if minor >= 12 => Self::ThisThread(dict),
            None => Self::Never,
        }
    }
}

/// The dict of this thread's state, as an address.
unsafe extern "C" fn dict() -> *mut c_void {
    // SAFETY: since 3.12 any thread may call it (F5).
    unsafe { ffi::PyThreadState_GetDict() }.cast()
}

/// The 11 of Python 3.11; 0 for a version that cannot be read.
fn minor_version() -> u32 {
    // SAFETY: may be called at any time (F1).
    let version = unsafe { ffi::Py_GetVersion() };
    // SAFETY: a static text (F2).
    let version = unsafe { CStr::from_ptr(version) };
    let minor = version.to_str().ok().and_then(|text| text.strip_prefix("3."));
    let minor = minor.and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    minor.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(unix)]
fn find(name: &CStr) -> Option<Current> {
    let library = libloading::os::unix::Library::this();
    // SAFETY: both functions have this type (F5).
    let function = unsafe { library.get::<Current>(name.to_bytes_with_nul()) };
    function.ok().map(|function| *function)
}

#[cfg(not(unix))]
fn find(_: &CStr) -> Option<Current> {
    None
}
