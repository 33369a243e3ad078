//! The operations on Python objects.
//! The protocol belongs to `import` and `class`.

use std::ffi::CStr;
use std::{fmt, ptr};

use super::api::Pointer;
use super::attached::{Object, Python};
use super::exception::Exception;

impl Python {
    /// A new reference; null means that Python raised an exception.
    ///
    /// # Safety
    ///
    /// `pointer` is null with an exception set, or a new reference.
    #[inline]
    pub(super) unsafe fn own(self, pointer: Pointer) -> Result<Object, Exception> {
        // SAFETY: the caller's duty.
        unsafe { self.owned(pointer) }.ok_or_else(|| Exception::take(self))
    }

    /// The exception that is set, if a function says that there is one.
    pub(super) fn check(self, answer: i32) -> Result<i32, Exception> {
        if answer < 0 { Err(Exception::take(self)) } else { Ok(answer) }
    }

    pub(super) fn intern(self, text: &CStr) -> Result<Object, Exception> {
        // SAFETY: attached; the text ends with a zero (F1, F2).
        let pointer = unsafe { self.api.PyUnicode_InternFromString(text.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.own(pointer) }
    }

    pub(super) fn integer(self, value: i64) -> Result<Object, Exception> {
        // SAFETY: attached (F1).
        let pointer = unsafe { self.api.PyLong_FromLongLong(value) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.own(pointer) }
    }

    pub(super) fn tuple<const N: usize>(self, items: [Object; N]) -> Result<Object, Exception> {
        // SAFETY: attached (F1).
        let pointer = unsafe { self.api.PyTuple_New(N as isize) };
        // SAFETY: a new reference or null (F3).
        let tuple = unsafe { self.own(pointer) }?;
        for (index, item) in items.into_iter().enumerate() {
            // SAFETY: a new tuple with a place for it; it takes the reference (F1, F2).
            let answer = unsafe {
                self.api.PyTuple_SetItem(tuple.as_ptr(), index as isize, item.into_raw())
            };
            self.check(answer)?;
        }
        Ok(tuple)
    }
}

impl Object {
    pub(super) fn kind(&self) -> Result<Object, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let kind = unsafe { self.python.api.PyObject_Type(self.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(kind) }
    }

    pub(super) fn attribute(&self, name: Pointer) -> Result<Object, Exception> {
        // SAFETY: live objects, attached (F1, F2).
        let value = unsafe { self.python.api.PyObject_GetAttr(self.as_ptr(), name) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(value) }
    }

    /// What indexing with `key` gives.
    pub(super) fn at(&self, key: Pointer) -> Result<Object, Exception> {
        // SAFETY: live objects, attached (F1, F2).
        let value = unsafe { self.python.api.PyObject_GetItem(self.as_ptr(), key) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(value) }
    }

    pub(super) fn has_attribute(&self, name: Pointer) -> bool {
        // SAFETY: live objects, attached; it swallows exceptions (F1, F2).
        unsafe { self.python.api.PyObject_HasAttr(self.as_ptr(), name) == 1 }
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
            self.python.api.PyObject_VectorcallMethod(method, arguments.as_ptr(), 1, names)
        };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(answer) }
    }

    pub(super) fn is_true(&self) -> Result<bool, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let answer = unsafe { self.python.api.PyObject_IsTrue(self.as_ptr()) };
        Ok(self.python.check(answer)? == 1)
    }

    pub(super) fn is_none(&self) -> bool {
        self.as_ptr() == self.python.api.none
    }

    pub(super) fn item(&self, index: isize) -> Result<Object, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let item = unsafe { self.python.api.PySequence_GetItem(self.as_ptr(), index) };
        // SAFETY: a new reference or null (F3).
        unsafe { self.python.own(item) }
    }

    pub(super) fn integer(&self) -> Result<i64, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let value = unsafe { self.python.api.PyLong_AsLongLong(self.as_ptr()) };
        // -1 is also a valid number.
        match Exception::pending(self.python) {
            Some(exception) if value == -1 => Err(exception),
            _ => Ok(value),
        }
    }

    /// What `str()` gives, with lone surrogates escaped.
    pub(super) fn text(&self) -> Result<String, Exception> {
        // SAFETY: a live object, attached (F1, F2).
        let text = unsafe { self.python.api.PyObject_Str(self.as_ptr()) };
        // SAFETY: a new reference or null (F3).
        let text = unsafe { self.python.own(text) }?;
        let mut size = 0;
        // SAFETY: a live string, attached (F1, F2).
        let start = unsafe { self.python.api.PyUnicode_AsUTF8AndSize(text.as_ptr(), &mut size) };
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
        let api = self.python.api;
        // SAFETY: a live string, attached; static texts (F1, F2).
        let bytes = unsafe { api.PyUnicode_AsEncodedString(self.as_ptr(), encoding, errors) };
        // SAFETY: a new reference or null (F3).
        let bytes = unsafe { self.python.own(bytes) }?;
        let (mut start, mut size) = (ptr::null_mut(), 0);
        // SAFETY: a live object, attached; two places to write to (F1, F2).
        let answer = unsafe { api.PyBytes_AsStringAndSize(bytes.as_ptr(), &mut start, &mut size) };
        self.python.check(answer)?;
        // SAFETY: as many bytes as Python says, kept by the object (F2).
        let text = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size as usize) };
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

impl Exception {
    /// Its text, without its class.
    pub(super) fn message(&self) -> String {
        self.value.as_ref().and_then(|value| value.text().ok()).unwrap_or_default()
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(kind) = &self.kind else {
            return f.write_str("python: a call failed and set no exception");
        };
        let name = self
            .python
            .intern(c"__qualname__")
            .and_then(|name| kind.attribute(name.as_ptr())?.text());
        write!(f, "{}: {}", name.unwrap_or_default(), self.message())
    }
}

impl fmt::Debug for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exception({self})")
    }
}
