//! Proofs that a thread is attached to the interpreter, and references to Python objects.
//! What can be done with an object belongs to `object`.
//! Invariant: an [`Object`] owns one reference, and stays on an attached thread.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::api::{self, Api, Pointer, PyObject};
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
    pub(super) fn attached() -> Result<Self> {
        let api = api::get()?;
        check_running(api)?;
        if !api.is_attached() {
            return Err(not_attached(match api.may_be_elsewhere() {
                false => {
                    "python: expected a thread that is attached to the main interpreter, found one \
                     that is not; PyGILState_Ensure attaches it"
                }
                true => {
                    "python: expected a thread that is attached to the main interpreter, found one \
                     that is detached, or in another interpreter; PyThreadState_Swap returns from that"
                }
            }));
        }
        let python = Self::of(api);
        python.check_interpreter()?;
        Ok(python)
    }

    /// The class and the names are objects of one interpreter, which others must not touch: one
    /// with a GIL of its own would change their reference counts at the same time.
    #[inline]
    fn check_interpreter(self) -> Result<()> {
        let found = self.interpreter();
        let first = INTERPRETER.load(Ordering::Acquire);
        if first == found { Ok(()) } else { self.claim(found) }
    }

    /// The number of the interpreter that this thread is attached to.
    #[inline]
    fn interpreter(self) -> i64 {
        // SAFETY: attached (F1).
        let interpreter = unsafe { self.api.PyInterpreterState_Get() };
        // SAFETY: the current interpreter (F1).
        unsafe { self.api.PyInterpreterState_GetID(interpreter) }
    }

    /// Whether it is the one that uses this library.
    pub(super) fn is_home(self) -> bool {
        self.interpreter() == INTERPRETER.load(Ordering::Acquire)
    }

    #[cold]
    fn claim(self, found: i64) -> Result<()> {
        let order = (Ordering::AcqRel, Ordering::Acquire);
        match INTERPRETER.compare_exchange(NO_INTERPRETER, found, order.0, order.1) {
            Ok(_) => {
                // SAFETY: attached; a function that stays loaded and calls nothing (F1, F2). Where
                // Python has no room for it, only a second start goes unnoticed.
                unsafe { self.api.Py_AtExit(ended) };
                Ok(())
            }
            Err(first) if first == found => Ok(()),
            Err(first) => Err(Error::NotAttached(format!(
                "python: expected interpreter {first}, which used dlbridge first, found \
                 interpreter {found}"
            ))),
        }
    }

    /// The token of a thread that was found to be attached.
    pub(super) fn of(api: &'static Api) -> Self {
        Self { api, thread: PhantomData }
    }

    /// What Python itself promises in callbacks.
    ///
    /// # Safety
    ///
    /// Python calls this thread's code.
    pub(super) unsafe fn in_callback() -> Option<Self> {
        Some(Self::of(api::get().ok()?))
    }

    /// Another reference to an object of the caller; `None` for null.
    ///
    /// # Safety
    ///
    /// `pointer` is null or a live object.
    pub(crate) unsafe fn borrow(self, pointer: *mut PyObject) -> Option<Object> {
        let pointer = NonNull::new(pointer)?;
        // SAFETY: a live object (the caller's duty), on an attached thread.
        unsafe { self.api.Py_IncRef(pointer.as_ptr()) };
        Some(Object { pointer, python: self })
    }

    /// A new reference, or `None` for null.
    ///
    /// # Safety
    ///
    /// `pointer` is null or a new reference.
    #[inline]
    pub(super) unsafe fn owned(self, pointer: Pointer) -> Option<Object> {
        Some(Object { pointer: NonNull::new(pointer)?, python: self })
    }
}

/// A reference to a Python object.
pub(crate) struct Object {
    pointer: NonNull<PyObject>,
    pub(super) python: Python,
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: attached, and this object owns the reference (F1).
        unsafe { self.python.api.Py_DecRef(self.pointer.as_ptr()) };
    }
}

impl Object {
    pub(super) fn as_ptr(&self) -> Pointer {
        self.pointer.as_ptr()
    }

    /// Gives the reference away.
    pub(crate) fn into_raw(self) -> *mut PyObject {
        let pointer = self.as_ptr();
        std::mem::forget(self);
        pointer
    }
}

fn not_attached(message: &str) -> Error {
    Error::NotAttached(message.to_owned())
}

/// Whether Python runs, and is the one that used this library first.
pub(super) fn is_running(api: &Api) -> bool {
    // SAFETY: may be called at any time, on any thread (F1).
    unsafe { api.Py_IsInitialized() != 0 && !ENDED.load(Ordering::Acquire) }
}

/// The same, with the reason why not.
fn check_running(api: &Api) -> Result<()> {
    // SAFETY: may be called at any time, on any thread (F1).
    if unsafe { api.Py_IsInitialized() } == 0 {
        return Err(not_attached("python: it is not running"));
    }
    if ENDED.load(Ordering::Acquire) {
        return Err(not_attached(
            "python: it was shut down and started again; dlbridge serves the first start only",
        ));
    }
    Ok(())
}
