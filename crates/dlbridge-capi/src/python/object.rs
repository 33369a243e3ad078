//! References to Python objects, and the operations on them.
//! The protocol belongs to `import` and `class`.
//! Invariant: an [`Object`] owns one reference, and stays on an attached thread.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::api::{self, Api, Pointer, PyObject};
use super::exception::Exception;
use crate::error::{Error, Result};

/// Proof that this thread is attached to the interpreter.
#[derive(Clone, Copy)]
pub(crate) struct Python {
    pub(super) api: &'static Api,
    /// Being attached belongs to a thread.
    thread: PhantomData<*mut ()>,
}

/// The interpreter that uses this library, or [`NO_INTERPRETER`] before the first call.
static INTERPRETER: AtomicI64 = AtomicI64::new(NO_INTERPRETER);
const NO_INTERPRETER: i64 = -1;

/// Whether the interpreter that used this library has been shut down.
static ENDED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn ended() {
    ENDED.store(true, Ordering::Release);
}

impl Python {
    /// Finds Python, and checks that this thread may use it.
    #[inline]
    pub(crate) fn attached() -> Result<Self> {
        let api = api::get()?;
        check_running(api)?;
        if !api.current.is_attached() {
            return Err(not_attached(
                "python: expected a thread that is attached to the main interpreter, found one \
                 that is not; PyGILState_Ensure attaches it",
            ));
        }
        let python = Self { api, thread: PhantomData };
        python.check_interpreter()?;
        Ok(python)
    }

    /// The class and the names are objects of one interpreter, which others must not touch: one
    /// with a GIL of its own would change their reference counts at the same time.
    #[inline]
    fn check_interpreter(self) -> Result<()> {
        // SAFETY: attached (F1).
        let interpreter = unsafe { (self.api.PyInterpreterState_Get)() };
        // SAFETY: the current interpreter (F1).
        let found = unsafe { (self.api.PyInterpreterState_GetID)(interpreter) };
        let first = INTERPRETER.load(Ordering::Acquire);
        if first == found { Ok(()) } else { self.claim(found) }
    }

    #[cold]
    fn claim(self, found: i64) -> Result<()> {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match INTERPRETER.compare_exchange(NO_INTERPRETER, found, order.0, order.1) {
            Ok(_) => {
                // SAFETY: attached; a function that stays loaded and calls nothing (F1, F2). Where
                // Python has no room for it, only a second start goes unnoticed.
                unsafe { (self.api.Py_AtExit)(ended) };
                Ok(())
            }
            Err(first) if first == found => Ok(()),
            Err(first) => Err(Error::NotAttached(format!(
                "python: expected interpreter {first}, which used dlbridge first, found \
                 interpreter {found}"
            ))),
        }
    }

    /// What Python itself promises in callbacks.
    ///
    /// # Safety
    ///
    /// Python calls this thread's code.
    pub(super) unsafe fn in_callback() -> Option<Self> {
        Some(Self { api: api::get().ok()?, thread: PhantomData })
    }

    /// Another reference to an object of the caller; `None` for null.
    ///
    /// # Safety
    ///
    /// `pointer` is null or a live object.
    pub(crate) unsafe fn borrow(self, pointer: *mut PyObject) -> Option<Object> {
        let pointer = NonNull::new(pointer)?;
        // SAFETY: a live object (the caller's duty), on an attached thread.
        unsafe { (self.api.Py_IncRef)(pointer.as_ptr()) };
        Some(Object { pointer, python: self })
    }

    /// A reference that Python just gave away; null means that it raised.
    ///
    /// # Safety
    ///
    /// `pointer` is null with an exception set, or a new reference.
    #[inline]
    pub(super) unsafe fn own(self, pointer: Pointer) -> Result<Object, Exception> {
        match NonNull::new(pointer) {
            Some(pointer) => Ok(Object { pointer, python: self }),
            None => Err(Exception::take(self)),
        }
    }

    /// The exception that is set, if a function says that there is one.
    pub(super) fn check(self, answer: i32) -> Result<i32, Exception> {
        if answer < 0 { Err(Exception::take(self)) } else { Ok(answer) }
    }

    pub(super) fn intern(self, text: &CStr) -> Result<Object, Exception> {
        // SAFETY: attached; the text ends with a zero (F1, F2).
        let pointer = unsafe { (self.api.PyUnicode_InternFromString)(text.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.own(pointer) }
    }

    pub(super) fn integer(self, value: i64) -> Result<Object, Exception> {
        // SAFETY: attached (F1).
        let pointer = unsafe { (self.api.PyLong_FromLongLong)(value) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.own(pointer) }
    }

    pub(super) fn tuple<const N: usize>(self, items: [Object; N]) -> Result<Object, Exception> {
        // SAFETY: attached (F1).
        let pointer = unsafe { (self.api.PyTuple_New)(N as isize) };
        // SAFETY: a new reference or null (F3).
        let tuple = unsafe { self.own(pointer) }?;
        for (index, item) in items.into_iter().enumerate() {
            // SAFETY: a new tuple with a place for it; it takes the reference (F1, F2).
            let answer = unsafe {
                (self.api.PyTuple_SetItem)(tuple.as_ptr(), index as isize, item.into_raw())
            };
            self.check(answer)?;
        }
        Ok(tuple)
    }
}

/// A reference to a Python object.
pub(crate) struct Object {
    pointer: NonNull<PyObject>,
    python: Python,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: attached, and the reference is ours to give back (F1).
        unsafe { (self.python.api.Py_DecRef)(self.pointer.as_ptr()) };
    }
}

impl Object {
    pub(super) fn python(&self) -> Python {
        self.python
    }

    pub(super) fn as_ptr(&self) -> Pointer {
        self.pointer.as_ptr()
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut PyObject {
        let pointer = self.as_ptr();
        std::mem::forget(self);
        pointer
    }

    pub(super) fn kind(&self) -> Result<Object, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let kind = unsafe { (self.python.api.PyObject_Type)(self.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(kind) }
    }

    pub(super) fn attribute(&self, name: Pointer) -> Result<Object, Exception> {
        // SAFETY: live objects, attached (F1, F2).
        let value = unsafe { (self.python.api.PyObject_GetAttr)(self.as_ptr(), name) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(value) }
    }

    /// What indexing with `key` gives.
    pub(super) fn at(&self, key: Pointer) -> Result<Object, Exception> {
        // SAFETY: live objects, attached (F1, F2).
        let value = unsafe { (self.python.api.PyObject_GetItem)(self.as_ptr(), key) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(value) }
    }

    pub(super) fn has_attribute(&self, name: Pointer) -> bool {
        // SAFETY: live objects, attached; it swallows exceptions (F1, F2).
        unsafe { (self.python.api.PyObject_HasAttr)(self.as_ptr(), name) == 1 }
    }

    /// Calls a method with keywords: a value for each name of the tuple, which may be null.
    #[inline]
    pub(super) fn call<const N: usize>(
        &self,
        method: Pointer,
        values: [Pointer; N],
        names: Pointer,
    ) -> Result<Object, Exception> {
        let mut arguments = [ptr::null_mut(); 3];
        const { assert!(N < 3) };
        arguments[0] = self.as_ptr();
        arguments[1..=N].copy_from_slice(&values);
        // SAFETY: one positional argument (the object) and a value for each keyword, all alive (F1,
        // F2).
        let answer = unsafe {
            (self.python.api.PyObject_VectorcallMethod)(method, arguments.as_ptr(), 1, names)
        };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(answer) }
    }

    pub(super) fn is_true(&self) -> Result<bool, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let answer = unsafe { (self.python.api.PyObject_IsTrue)(self.as_ptr()) };
        Ok(self.python.check(answer)? == 1)
    }

    pub(super) fn is_none(&self) -> bool {
        self.as_ptr() == self.python.api.none
    }

    pub(super) fn item(&self, index: isize) -> Result<Object, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let item = unsafe { (self.python.api.PySequence_GetItem)(self.as_ptr(), index) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(item) }
    }

    pub(super) fn integer(&self) -> Result<i64, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let value = unsafe { (self.python.api.PyLong_AsLongLong)(self.as_ptr()) };
        // -1 is a number, too.
        match Exception::pending(self.python) {
            Some(exception) if value == -1 => Err(exception),
            _ => Ok(value),
        }
    }

    /// What `str()` gives, with lone surrogates escaped.
    pub(super) fn text(&self) -> Result<String, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let text = unsafe { (self.python.api.PyObject_Str)(self.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        let text = unsafe { self.python.own(text) }?;
        let mut size = 0;
        // SAFETY: a live string, attached (F1, F2).
        let start = unsafe { (self.python.api.PyUnicode_AsUTF8AndSize)(text.as_ptr(), &mut size) };
        if start.is_null() {
            drop(Exception::take(self.python));
            return text.escaped();
        }
        // SAFETY: as many bytes as Python says, kept by the string (F2).
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size as usize) };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A string that UTF-8 cannot encode: lone surrogates are escaped.
    #[cold]
    fn escaped(&self) -> Result<String, Exception> {
        let (encoding, errors) = (c"utf-8".as_ptr(), c"backslashreplace".as_ptr());
        let encode = self.python.api.PyUnicode_AsEncodedString;
        // SAFETY: a live string, attached; static texts (F1, F2).
        let bytes = unsafe { encode(self.as_ptr(), encoding, errors) };
        // SAFETY: a new reference or null (F3).
        let bytes = unsafe { self.python.own(bytes) }?;
        let (mut start, mut size) = (ptr::null_mut(), 0);
        let read = self.python.api.PyBytes_AsStringAndSize;
        // SAFETY: a live object, attached; two places to write to (F1, F2).
        let answer = unsafe { read(bytes.as_ptr(), &mut start, &mut size) };
        self.python.check(answer)?;
        // SAFETY: as many bytes as Python says, kept by the object (F2).
        let text = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size as usize) };
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

fn not_attached(message: &str) -> Error {
    Error::NotAttached(message.to_owned())
}

/// Whether Python runs, and is the one that used this library first.
fn check_running(api: &Api) -> Result<()> {
    // SAFETY: may be called at any time, on any thread (F1).
    if unsafe { (api.Py_IsInitialized)() } == 0 {
        return Err(not_attached("python: it is not running"));
    }
    if ENDED.load(Ordering::Acquire) {
        return Err(not_attached(
            "python: it was shut down and started again; dlbridge serves the first start only",
        ));
    }
    Ok(())
}

/// Runs deleters, if this thread may: no thread that holds the GIL can be waiting for it. An
/// exception that is set stays set.
pub(crate) fn release(deleters: impl FnOnce() -> usize) -> usize {
    let Ok(api) = api::get() else { return deleters() };
    if check_running(api).is_err() {
        return deleters();
    }
    let Ok(python) = Python::attached() else { return 0 };
    python.undisturbed(deleters)
}

/// Whether the objects of the Python that this library uses are alive.
pub(crate) fn is_running() -> bool {
    api::get().is_ok_and(|api| check_running(api).is_ok())
}

/// Runs code that may run Python code. An exception that is set stays set.
pub(crate) fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    match Python::attached() {
        Ok(python) => python.undisturbed(work),
        Err(_) => work(),
    }
}

impl Python {
    /// The same on a thread that is attached.
    pub(super) fn undisturbed<T>(self, work: impl FnOnce() -> T) -> T {
        let exception = Exception::pending(self);
        let result = work();
        if let Some(exception) = exception {
            exception.restore();
        }
        result
    }
}
