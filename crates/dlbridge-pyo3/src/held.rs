//! What is let go beside Python: objects that a tensor keeps alive, tensors that an object keeps.
//! What memory they have does not belong here.
//! Invariant: each is let go once, an object never after the interpreter is gone, and no exception
//! that is on its way is seen or lost.

use std::mem::ManuallyDrop;
use std::ops::Deref;

use dlbridge::ArcTensor;
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

/// The tensor of a Python object.
///
/// Objects go while exceptions are on their way, and a producer's deleter may be Python code: it
/// must not see the exception, nor leave one of its own. Memory of Rust has no such deleter, and
/// what a [`Held`] keeps is let go beside exceptions anyway.
#[derive(Debug)]
pub(crate) struct Kept(ManuallyDrop<ArcTensor>);

impl Kept {
    #[inline]
    pub(crate) fn new(tensor: ArcTensor) -> Self {
        Self(ManuallyDrop::new(tensor))
    }
}

impl Deref for Kept {
    type Target = ArcTensor;

    #[inline]
    fn deref(&self) -> &ArcTensor {
        &self.0
    }
}

impl Drop for Kept {
    #[inline]
    fn drop(&mut self) {
        let is_foreign = self.is_foreign();
        // SAFETY: taken once, and not used again (R7).
        let tensor = unsafe { ManuallyDrop::take(&mut self.0) };
        if is_foreign {
            release(tensor);
        }
    }
}

/// Lets a producer's tensor go.
#[cold]
fn release(tensor: ArcTensor) {
    let mut tensor = Some(tensor);
    Python::try_attach(|py| {
        let tensor = tensor.take();
        undisturbed(py, || drop(tensor));
    });
    // Without an interpreter there are no exceptions.
    drop(tensor);
}

/// Runs `work`, which may run Python code, beside an exception that is on its way: it neither sees
/// nor loses it.
#[inline]
#[allow(deprecated, reason = "what takes their place is in no limited API before 3.12")]
pub(crate) fn undisturbed(_: Python<'_>, work: impl FnOnce()) {
    let (mut kind, mut value, mut trace) =
        (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: attached; the places are ours (F1).
    unsafe { ffi::PyErr_Fetch(&mut kind, &mut value, &mut trace) };
    work();
    // SAFETY: attached; what was fetched above (F1).
    unsafe { ffi::PyErr_Restore(kind, value, trace) };
}
