//! Fetches and restores Python exceptions. Their text is read in `object`.
//! Statuses belong to `error`.
//! Invariant: a fetched exception is no longer set.

use std::ptr;

use super::api::{Api, Pointer};
use super::attached::{Object, Python};
use crate::entry::c_text;
use crate::error::{Error, Restore};

/// An exception that was raised.
pub(crate) struct Exception {
    pub(super) python: Python,
    pub(super) kind: Option<Object>,
    pub(super) value: Option<Object>,
    trace: Option<Object>,
}

impl Exception {
    /// The exception that is set.
    pub(super) fn pending(python: Python) -> Option<Self> {
        let (mut kind, mut value, mut trace) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        // SAFETY: attached; three places to write to (F1).
        unsafe { python.api.PyErr_Fetch(&mut kind, &mut value, &mut trace) };
        if kind.is_null() {
            return None;
        }
        // SAFETY: attached; the three belong together (F1).
        unsafe { python.api.PyErr_NormalizeException(&mut kind, &mut value, &mut trace) };
        let [kind, value, trace] = [kind, value, trace].map(|pointer| {
            // SAFETY: references that were given to us, or null (F3).
            unsafe { python.owned(pointer) }
        });
        Some(Self { python, kind, value, trace })
    }

    /// The exception that a function has just set; one without a type if it forgot to.
    #[cold]
    pub(super) fn take(python: Python) -> Self {
        Self::pending(python).unwrap_or(Self { python, kind: None, value: None, trace: None })
    }

    /// Sets it again.
    pub(super) fn restore(self) {
        let Self { python, kind, value, trace } = self;
        let [kind, value, trace] =
            [kind, value, trace].map(|object| object.map_or(ptr::null_mut(), Object::into_raw));
        // SAFETY: attached; it takes three references, or null (F1).
        unsafe { python.api.PyErr_Restore(kind, value, trace) };
    }

    /// Whether it is of this class.
    pub(super) fn is_a(&self, class: impl FnOnce(&Api) -> *const Pointer) -> bool {
        let Some(kind) = &self.kind else { return false };
        // SAFETY: a variable of Python that holds a class (F5).
        let class = unsafe { class(self.python.api).read() };
        // SAFETY: live objects, attached (F1, F2).
        unsafe { self.python.api.PyErr_GivenExceptionMatches(kind.as_ptr(), class) == 1 }
    }
}

impl Restore for Exception {
    fn restore(self: Box<Self>) {
        (*self).restore();
    }
}

impl From<Exception> for Error {
    fn from(exception: Exception) -> Self {
        Self::Python(Box::new(exception))
    }
}

impl Python {
    /// Drops the exception that is set, if there is one.
    pub(super) fn clear(self) {
        // SAFETY: attached (F1).
        unsafe { self.api.PyErr_Clear() };
    }
}

/// Sets a new exception, as a callback must before it fails.
pub(super) fn raise(python: Python, class: impl FnOnce(&Api) -> *const Pointer, message: &str) {
    let message = c_text(message);
    // SAFETY: a variable of Python that holds a class (F5).
    let class = unsafe { class(python.api).read() };
    // SAFETY: attached; the text ends with a zero (F1).
    unsafe { python.api.PyErr_SetString(class, message.as_ptr()) };
}
