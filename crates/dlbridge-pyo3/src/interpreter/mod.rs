//! Functions of the interpreter that PyO3 does not offer: whether this thread is attached, pending calls,
//! calls of foreign code on a thread that Python may end, a module that is already imported; and values that
//! are made once, with Python's help.
//! Invariants: `attached` never returns a token on a detached thread; none if Python does not provide the
//! answer. A thread that Python ends unwinds no frame of `through_pyo3`. No Python code runs while other code
//! waits for a value of `Once`.
//!
//! `dlbridge::protocol::attached` chooses the functions that tell whether this thread is attached. PyO3
//! counts only the threads that it attached itself, and misses those on which Python frees an array,
//! which calls a deleter of this library.
#![allow(unsafe_code, reason = "functions and structs of Python; the rooms above have safe ones")]

pub(crate) mod head;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;
use std::{mem, process, ptr, thread};

use dlbridge::MAX_NDIM;
use dlbridge::ffi::{Unwinds, on_unwind, stopping, stopping_first};
use dlbridge::protocol::attached::{Attachment, version};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyIterator, PyString};
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
        // SAFETY: all of them have this type (F5).
        function => function.map(|it| unsafe { mem::transmute::<NonNull<c_void>, State>(it) }),
    }
}

/// The dict of this thread's state, as an address.
unsafe extern "C" fn dict() -> *mut c_void {
    // SAFETY: since 3.12 any thread may call it (F5).
    unsafe { ffi::PyThreadState_GetDict() }.cast()
}

/// The address of a function in this process.
#[cfg(unix)]
pub(crate) fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    unsafe extern "C" {
        fn dlopen(name: *const c_char, mode: c_int) -> *mut c_void;
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    const RTLD_LAZY: c_int = 1;
    // SAFETY: without a name, the program and what it has loaded; loads nothing (F5).
    let program = unsafe { dlopen(ptr::null(), RTLD_LAZY) };
    // SAFETY: what `dlopen` returned, and a text (F2, F5).
    NonNull::new(unsafe { dlsym(program, name.as_ptr()) })
}

#[cfg(not(unix))]
pub(crate) fn symbol(_: &CStr) -> Option<NonNull<c_void>> {
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

/// The interpreter that this thread is attached to. It lives as long as the thread is attached.
fn interpreter(_: Python<'_>) -> *mut ffi::PyInterpreterState {
    // SAFETY: attached (F1).
    unsafe { ffi::PyInterpreterState_Get() }
}

/// Whether this thread runs the main interpreter, not a sub-interpreter.
pub(crate) fn is_main(py: Python<'_>) -> bool {
    // SAFETY: the interpreter of this thread (F1, F2).
    unsafe { ffi::PyInterpreterState_GetID(interpreter(py)) == 0 }
}

/// The dict that this thread's interpreter keeps for extension modules; `None` without memory for one.
pub(crate) fn module_state(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    // SAFETY: the interpreter of this thread (F1, F2).
    let dict = unsafe { ffi::PyInterpreterState_GetDict(interpreter(py)) };
    // SAFETY: borrowed from the interpreter, or null without an exception (F3).
    unsafe { Bound::from_borrowed_ptr_or_opt(py, dict) }
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

/// Runs work that needs Python, in a function that code in C calls with or without the GIL.
///
/// [`Python::attach`] does not see that C has released the GIL if a function of PyO3 is further up on the stack: it takes
/// the thread for attached, and Python then crashes. This function asks Python itself.
///
/// ```
/// use dlbridge_pyo3::attach;
/// use pyo3::prelude::*;
///
/// /// A callback of a library in C.
/// extern "C" fn warn(percent: i32) {
///     let text = format!("{percent} % are done");
///     let warned = attach(|py| py.import("warnings")?.call_method1("warn", (text,)).map(drop));
///     warned.unwrap_or_else(|error| eprintln!("{error}"));
/// }
/// # Python::initialize();
/// # warn(50);
/// # Python::attach(|py| py.detach(|| warn(100)));
/// ```
///
/// A thread that calls it after Python has ended stops, as in CPython 3.14.
pub fn attach<R>(work: impl FnOnce(Python<'_>) -> R) -> R {
    let _attached = Attached::new();
    // PyO3 counts this thread as attached as well, so that it drops Python objects at once.
    through_pyo3(|| Python::attach(work))
}

struct Attached(ffi::PyGILState_STATE);

impl Attached {
    fn new() -> Self {
        while !is_initialized() {
            thread::park();
        }
        // SAFETY: Python runs; any thread may call it, attached or not (F1).
        Self(unsafe { ffi::PyGILState_Ensure() })
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // SAFETY: the state of the call that attached this thread, once (F1, R7).
        unsafe { ffi::PyGILState_Release(self.0) };
    }
}

/// Runs work that calls Python through PyO3. The unwinding of a thread that Python ends would drop objects
/// in PyO3's frames without the GIL, and end the process.
pub fn through_pyo3<R>(work: impl FnOnce() -> R) -> R {
    on_unwind(check_ended);
    stopping_first(work)
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

/// Whether an object is a sequence, as Python's functions in C see it. `PySequence` of PyO3 asks `collections.abc`, whose
/// exceptions it hides, and whose locks a forked child may wait for.
pub(crate) fn is_sequence(object: Borrowed<'_, '_, PyAny>) -> bool {
    // SAFETY: attached, and an object (F1).
    unsafe { ffi::PySequence_Check(object.as_ptr()) == 1 }
}

/// The items of a dict, or of another object with `keys` that is no array and no table; `None` for any other object.
/// (`PyMapping` of PyO3: see `is_sequence`.)
///
/// # Errors
///
/// Those of the object's own code.
pub fn items<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let py = object.py();
    let is_mapping = object.is_instance_of::<PyDict>()
        || (object.hasattr(intern!(py, "keys"))? && !object.hasattr(intern!(py, "shape"))?);
    if !is_mapping {
        return Ok(None);
    }
    each(object.call_method0(intern!(py, "items"))?.try_iter()?).collect::<PyResult<_>>().map(Some)
}

/// The objects of an iterator. The hint of PyO3's own asks `__len__`, and hides its exception.
fn each<'py>(
    mut items: Bound<'py, PyIterator>,
) -> impl Iterator<Item = PyResult<Bound<'py, PyAny>>> {
    std::iter::from_fn(move || items.next())
}

/// The ints of a sequence, no more than make a shape impossible; `None` for a text or another object. PyO3's own
/// extraction makes room for as many as `__len__` says, hides its exception, and iterates without an end.
#[must_use]
pub fn extents(object: Borrowed<'_, '_, PyAny>) -> Option<PyResult<Vec<i64>>> {
    let is_list = is_sequence(object) && !object.is_instance_of::<PyString>();
    is_list
        .then(|| each(object.try_iter()?).take(MAX_NDIM + 1).map(|item| item?.extract()).collect())
}

/// Attributes of an object. PyO3's functions are compiled into each place that calls them, these once.
pub(crate) trait Attributes<'py> {
    fn attribute(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>>;

    /// `None` if there is none.
    fn attribute_opt(&self, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>>;
}

impl<'py> Attributes<'py> for Bound<'py, PyAny> {
    #[inline(never)]
    fn attribute(&self, name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
        self.getattr(name)
    }

    #[inline(never)]
    fn attribute_opt(&self, name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(look_up) = *LOOK_UP.get_or_init(find_look_up) else {
            return self.getattr_opt(name);
        };
        let mut attribute = ptr::null_mut();
        // SAFETY: attached, an object and a name; the place is ours (F1, F2).
        unsafe { look_up(self.as_ptr(), name.as_ptr(), &mut attribute) };
        // SAFETY: a new reference, or null with or without an exception set (F3).
        unsafe { found(self.py(), attribute) }
    }
}

/// Stores an attribute; null if there is none, for which it makes no exception, or with an exception set.
type LookUp = unsafe extern "C-unwind" fn(
    *mut ffi::PyObject,
    *mut ffi::PyObject,
    *mut *mut ffi::PyObject,
) -> c_int;

/// The function of the Python in this process. The limited API has one from 3.13 on; making the exception, and
/// dropping it, takes ten times as long.
static LOOK_UP: OnceLock<Option<LookUp>> = OnceLock::new();

#[cold]
fn find_look_up() -> Option<LookUp> {
    // The first since 3.13, the second until then.
    let function =
        symbol(c"PyObject_GetOptionalAttr").or_else(|| symbol(c"_PyObject_LookupAttr"))?;
    // SAFETY: both have this type (F5).
    Some(unsafe { mem::transmute::<NonNull<c_void>, LookUp>(function) })
}

/// An object that may be missing.
///
/// # Safety
///
/// The pointer is a new reference, or null with or without an exception set.
unsafe fn found(py: Python<'_>, object: *mut ffi::PyObject) -> PyResult<Option<Bound<'_, PyAny>>> {
    // SAFETY: a new reference or null: the caller's duty.
    match unsafe { Bound::from_owned_ptr_or_opt(py, object) } {
        Some(object) => Ok(Some(object)),
        None => PyErr::take(py).map_or(Ok(None), Err),
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
    let module = unsafe { found(py, module) }?;
    Ok(module.filter(|module| !module.is_none()))
}

/// A module, imported if it is not yet. (PyO3's `import` calls Python's `__import__` each time.)
pub(crate) fn module<'py>(name: &Bound<'py, PyString>) -> PyResult<Bound<'py, PyAny>> {
    match imported_module(name)? {
        Some(module) => Ok(module),
        None => Ok(name.py().import(name)?.into_any()),
    }
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

/// A value that is made at its first use.
///
/// Making it may run Python code: an import hook, a signal handler, a finaliser. That code may need the
/// same value. Inside `get_or_init` of PyO3 or of the standard library it would wait for itself.
pub(crate) struct Once<T>(PyOnceLock<T>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(PyOnceLock::new())
    }

    /// The value. Where several threads, or nested calls, make it at the same time, the first stays.
    #[inline]
    pub(crate) fn get_or_make<E>(
        &self,
        py: Python<'_>,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<&T, E> {
        match self.0.get(py) {
            Some(value) => Ok(value),
            None => self.make(py, make),
        }
    }

    #[cold]
    fn make<E>(&self, py: Python<'_>, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let value = make()?;
        // Dropping a second value may run Python code as well.
        drop(self.0.set(py, value));
        Ok(self.0.get(py).expect("it was set"))
    }
}
