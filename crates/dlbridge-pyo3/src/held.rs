//! A Python object that keeps memory alive for a tensor.
//! What its memory is does not belong here.
//! Invariant: the reference is given back exactly once, to a living interpreter, from whatever
//! thread; without one, it is left alone.

use std::mem::ManuallyDrop;

use pyo3::prelude::*;

/// An owner that is a Python object. Unlike a plain `Py`, dropping it on a thread that is not
/// attached to the interpreter attaches it, as NumPy's own deleter does, rather than putting the
/// release off until somebody else comes along.
pub(crate) struct Held(ManuallyDrop<Py<PyAny>>);

impl Held {
    #[inline]
    pub(crate) fn new(object: Py<PyAny>) -> Self {
        Self(ManuallyDrop::new(object))
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        let mut object = Some(object);
        // `None` if the interpreter is gone, or going: its objects are not to be touched then.
        Python::try_attach(|py| drop(object.take().map(|object| object.into_bound(py))));
        std::mem::forget(object);
    }
}
