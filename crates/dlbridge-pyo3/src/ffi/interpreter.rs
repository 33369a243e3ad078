//! Functions of the interpreter that PyO3 does not offer: whether this thread is attached, pending calls,
//! calls of foreign code on a thread that Python may end, a module that is already imported.
//! Invariants: `attached` never returns a token on a detached thread; none if Python does not provide the
//! answer. A thread that Python ends unwinds no frame of `through_pyo3`.
//!
//! `dlbridge::protocol::attached` chooses the functions that tell whether this thread is attached. PyO3
//! counts only the threads that it attached itself, and misses those on which Python frees an array,
//! which calls a deleter of this library.

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;
use std::{process, ptr, thread};

use dlbridge::ffi::{Unwinds, stopping};
use dlbridge::protocol::attached::{Attachment, version};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PyString};
#[cfg(not(windows))]
use pyo3::{Borrowed, types::PyTuple};

/// A function that returns a state of a thread.
type State = unsafe extern "C" fn() -> *mut c_void;

/// The functions of the Python in this process; `None` for one that lacks them.
static ATTACHMENT: OnceLock<Option<Attachment<State>>> = OnceLock::new();

/// The token of this thread, if it is attached. First called on an attached thread, since the library
/// loader has locks.
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
pub(crate) fn is_initialized() -> bool {
    // SAFETY: may be called at any time, on any thread (F5).
    unsafe { ffi::Py_IsInitialized() != 0 }
}

/// Asks the main thread to call `work` soon; `false` if there is no room.
///
/// Called while there is an interpreter that does not end.
pub(crate) fn add_pending(work: &'static fn(Python<'_>)) -> bool {
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

/// Releases an object, which may run Python code.
#[inline]
pub(crate) fn release(object: Bound<'_, PyAny>) {
    // The compiler would see a function that is declared as one that does not unwind.
    let decrease: unsafe extern "C" fn(*mut ffi::PyObject) = black_box(ffi::Py_DecRef);
    let object = object.into_ptr();
    // SAFETY: attached, and a reference that is given up (F1, F3).
    stopping(|| unsafe { decrease.unwinding()(object) });
}

/// Runs work that calls Python through PyO3. The unwinding of a thread that Python ends would drop objects
/// in PyO3's frames without the GIL, and end the process.
pub(crate) fn through_pyo3<R>(work: impl FnOnce() -> R) -> R {
    let _handler = cleanup::Handler::push();
    work()
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod cleanup {
    use std::cell::Cell;
    use std::ffi::{c_int, c_void};
    use std::{ptr, thread};

    /// glibc's `struct _pthread_cleanup_buffer`.
    #[repr(C)]
    struct Buffer {
        routine: Option<Routine>,
        argument: *mut c_void,
        cancel_type: c_int,
        previous: *mut Self,
    }

    type Routine = unsafe extern "C" fn(*mut c_void);

    unsafe extern "C" {
        fn _pthread_cleanup_push(buffer: *mut Buffer, routine: Routine, argument: *mut c_void);
        fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
    }

    thread_local! {
        /// The handlers of this thread, which share the first one's buffer: greenlets need not end in
        /// the order of a stack.
        static HANDLERS: Cell<u32> = const { Cell::new(0) };
        static BUFFER: Cell<*mut Buffer> = const { Cell::new(ptr::null_mut()) };
    }

    /// Stops a thread that Python ends while the value lives. glibc calls a handler when the unwinding leaves the
    /// frame that its buffer is in, which it tells by the address. A buffer outside the stack is left
    /// first of all.
    pub(super) struct Handler;

    impl Handler {
        pub(super) fn push() -> Self {
            HANDLERS.set(HANDLERS.get() + 1);
            if HANDLERS.get() == 1 {
                let (argument, previous) = (ptr::null_mut(), ptr::null_mut());
                let buffer = Buffer { routine: None, argument, cancel_type: 0, previous };
                BUFFER.set(Box::into_raw(Box::new(buffer)));
                // SAFETY: a buffer that lives until it is popped (F2, F5).
                unsafe { _pthread_cleanup_push(BUFFER.get(), stop, argument) };
            }
            Self
        }
    }

    impl Drop for Handler {
        fn drop(&mut self) {
            HANDLERS.set(HANDLERS.get() - 1);
            if HANDLERS.get() == 0 {
                // SAFETY: pushed by this thread, and not called (F5).
                unsafe { _pthread_cleanup_pop(BUFFER.get(), 0) };
                // SAFETY: made by the first handler, and popped above (R7).
                drop(unsafe { Box::from_raw(BUFFER.get()) });
            }
        }
    }

    unsafe extern "C" fn stop(_: *mut c_void) {
        super::check_ended();
        loop {
            thread::park();
        }
    }
}

/// Elsewhere, `pthread_exit` does not unwind Rust's frames.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod cleanup {
    pub(super) struct Handler;

    impl Handler {
        pub(super) fn push() -> Self {
            Self
        }
    }
}

/// Returns if this thread, which foreign code unwinds, is one that Python ends.
#[cold]
pub(crate) fn check_ended() {
    // Python says that it has ended a moment after it has.
    thread::sleep(Duration::from_millis(100));
    if is_initialized() {
        // A C++ exception, which a function of C must not throw.
        process::abort();
    }
}

unsafe extern "C" {
    // In the stable ABI since Python 3.7; PyO3 declares it for the limited API from 0.28 on.
    fn PyImport_GetModule(name: *mut ffi::PyObject) -> *mut ffi::PyObject;
}

/// A module that is already imported. (Importing takes microseconds.)
pub(crate) fn imported_module<'py>(
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = name.py();
    // SAFETY: attached, and a name (F1, F2).
    let module = unsafe { PyImport_GetModule(name.as_ptr()) };
    // SAFETY: a new reference, or null with or without an exception set (F3).
    match unsafe { Bound::from_owned_ptr_or_opt(py, module) } {
        Some(module) => Ok(Some(module).filter(|module| !module.is_none())),
        None => PyErr::take(py).map_or(Ok(None), Err),
    }
}

/// An iterator over the items of a sequence, which `__getitem__` gives.
pub(crate) fn iterator<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    // SAFETY: attached, and an object (F1).
    let iterator = unsafe { ffi::PySeqIter_New(sequence.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let iterator = unsafe { Bound::from_owned_ptr_or_err(sequence.py(), iterator) }?;
    Ok(iterator.cast_into()?)
}

// Part of the limited API since 3.12 only, but exported by every CPython since 3.9.
#[cfg(not(windows))]
unsafe extern "C-unwind" {
    fn PyObject_VectorcallMethod(
        name: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        count: usize,
        keywords: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// The name of an argument, as a call takes it.
#[cfg(not(windows))]
pub(crate) struct Keyword(Py<PyTuple>);

#[cfg(not(windows))]
impl Keyword {
    pub(crate) fn new(name: &Bound<'_, PyString>) -> PyResult<Self> {
        Ok(Self((name,).into_pyobject(name.py())?.unbind()))
    }
}

/// Calls a method with one named argument.
#[cfg(not(windows))]
#[inline]
pub(crate) fn call_with_keyword<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    method: &Bound<'py, PyString>,
    value: Borrowed<'_, 'py, PyAny>,
    keyword: &Keyword,
) -> PyResult<Bound<'py, PyAny>> {
    let arguments = [object.as_ptr(), value.as_ptr()];
    // SAFETY: one positional argument (the object itself) and one value for the one keyword, all
    // alive during the call (F1, F2).
    let answer = stopping(|| unsafe {
        PyObject_VectorcallMethod(method.as_ptr(), arguments.as_ptr(), 1, keyword.0.as_ptr())
    });
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(object.py(), answer) }
}
