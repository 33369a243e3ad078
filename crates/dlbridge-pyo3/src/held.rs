//! A Python object that a tensor keeps alive.
//! What memory it has does not belong here.
//! Invariant: the object is let go once, on any thread, and never after the interpreter is gone.

use pyo3::prelude::*;
use pyo3::{Bound, ffi};

/// The owner of a tensor over a Python object's memory.
///
/// Dropped on a thread that is not attached, it attaches for as long as it takes, as NumPy's own
/// deleter does: PyO3 alone would put the object off until some function of this extension is
/// called, and a `bytearray` could not be resized in the meantime. Once the interpreter is going
/// or gone, the object is left where it is.
pub(crate) struct Held(Option<Py<PyAny>>);

impl Held {
    #[inline]
    pub(crate) fn new(object: Bound<'_, PyAny>) -> Self {
        Self(Some(object.unbind()))
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        let Some(object) = self.0.take() else { return };
        let mut object = Some(object);
        Python::try_attach(|py| {
            let object = object.take();
            undisturbed(py, || drop(object));
        });
        std::mem::forget(object);
    }
}

/// Runs `work`, which may run Python code, beside an exception that is on its way: it neither sees
/// nor loses it.
#[inline]
#[allow(deprecated, reason = "what takes their place is in no limited API before 3.12")]
pub(crate) fn undisturbed(_: Python<'_>, work: impl FnOnce()) {
    let (mut kind, mut value, mut trace) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: attached; the places are ours.
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace) };
    work();
    // SAFETY: attached; what was fetched above.
    unsafe { ffi::PyErr_Restore(kind, value, trace) };
}
