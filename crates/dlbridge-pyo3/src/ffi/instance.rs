//! Objects of a class of PyO3's, without its constructor. That one calls `object.__new__`, which fills the object with
//! zeros and shows it to the garbage collector. An object that is made here, returned and freed takes 707 instructions for
//! 851, and no collection looks at it.
//! Invariant: an object is made here only once one of PyO3's has shown what it consists of.

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use pyo3::PyClass;
use pyo3::ffi::{self, PyObject, PyTypeObject};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;

use crate::interpreter::head::Head;

unsafe extern "C" {
    // In the stable ABI; PyO3 has it by another name from 0.30 on.
    fn _PyObject_GC_New(kind: *mut PyTypeObject) -> *mut PyObject;
}

/// What an object has behind its head.
#[repr(C)]
struct Content<T> {
    value: T,
    weak_references: *mut PyObject,
}

/// A class whose objects have this content alone. Null before that was seen.
pub(crate) struct Known<T>(AtomicPtr<PyTypeObject>, PhantomData<fn(T)>);

impl<T: PyClass<Frozen = True> + Sync> Known<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()), PhantomData)
    }

    /// Looks at an object that PyO3 made.
    #[cold]
    pub(crate) fn look(&self, made: &Bound<'_, T>) {
        if has_content(made) == Some(true) {
            self.0.store(made.as_any().get_type_ptr(), Ordering::Relaxed);
        }
    }

    /// The class, if its objects are known.
    #[inline(always)]
    pub(crate) fn class(&self) -> Option<Class<T>> {
        NonNull::new(self.0.load(Ordering::Relaxed)).map(|class| Class(class, PhantomData))
    }
}

/// A class whose objects are known.
pub(crate) struct Class<T>(NonNull<PyTypeObject>, PhantomData<fn(T)>);

impl<T: PyClass> Class<T> {
    /// An object of a value, which the garbage collector sees if `is_tracked`.
    ///
    /// # Errors
    ///
    /// A `MemoryError`.
    #[inline(always)]
    pub(crate) fn make(self, py: Python<'_>, value: T, is_tracked: bool) -> PyResult<Bound<'_, T>> {
        // SAFETY: attached, and a class of objects that the collector may see, as all of PyO3's are (F1).
        let object = unsafe { _PyObject_GC_New(self.0.as_ptr()) };
        if object.is_null() {
            return no_memory(py);
        }
        // SAFETY: `look` measured the head (F5).
        let head = unsafe { Head::measured() };
        let content = Content { value, weak_references: ptr::null_mut() };
        // SAFETY: all that a new object of this class has behind its head, as `look` saw (F5).
        unsafe { head.fields::<Content<T>>(object).write(content) };
        if is_tracked {
            // SAFETY: attached; a new object, whole, that the collector does not see yet (F1).
            unsafe { ffi::PyObject_GC_Track(object.cast()) };
        }
        // SAFETY: a new reference, and not null (F3).
        let object = unsafe { Bound::from_owned_ptr(py, object) };
        // SAFETY: made just now, of the class of `T` (F5).
        Ok(unsafe { object.cast_into_unchecked() })
    }
}

/// The exception that Python set. A call, so that the caller need not move a result that fails.
#[cold]
#[inline(never)]
fn no_memory<T>(py: Python<'_>) -> PyResult<Bound<'_, T>> {
    Err(PyErr::fetch(py))
}

/// Whether an object of PyO3's consists of its head and a `Content`; `None` if Python does not say.
fn has_content<T>(made: &Bound<'_, T>) -> Option<bool>
where
    T: PyClass<Frozen = True> + Sync,
{
    let py = made.py();
    let head = Head::measure(py)?;
    let content = head.fields::<Content<T>>(made.as_ptr());
    let class = made.as_any().get_type();
    let number = |name| class.getattr(name).ok()?.extract::<usize>().ok();
    let weak_at = head.size() + offset_of!(Content<T>, weak_references);
    Some(
        ptr::from_ref(made.get()).addr() == content.addr() + offset_of!(Content<T>, value)
            && number(intern!(py, "__weakrefoffset__"))? == weak_at
            && number(intern!(py, "__basicsize__"))? == head.size() + size_of::<Content<T>>()
            && number(intern!(py, "__itemsize__"))? == 0
            && number(intern!(py, "__dictoffset__"))? == 0,
    )
}
