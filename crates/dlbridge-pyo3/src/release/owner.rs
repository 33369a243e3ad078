//! Values that need the interpreter, and their owner.
//! How they are released belongs to `mod`.
#![allow(unsafe_code, reason = "a value that is moved out of a drop")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

use dlbridge::ffi::is_foreign;
use dlbridge::{ArcTensor, Tensor};
use pyo3::prelude::*;

use super::{is_running, release};
use crate::interpreter;
use crate::interpreter::head::has_other_references;

/// A value that only an attached thread may release. It is never dropped, only released or leaked.
pub(crate) trait NeedsInterpreter: Send + 'static {
    /// Releases the value. It must not panic, and may run Python code.
    fn release(self, py: Python<'_>);

    /// Whether the release may run code: releases nest, and exceptions are set.
    #[inline]
    fn runs_code(&self, _: Python<'_>) -> bool {
        true
    }

    /// Whether this value needs the interpreter. Without need, it is dropped at once, on any thread.
    #[inline]
    fn is_needed(&self) -> bool {
        true
    }
}

impl NeedsInterpreter for Py<PyAny> {
    #[inline]
    fn release(self, py: Python<'_>) {
        interpreter::release(self.into_bound(py));
    }

    /// An argument has a reference of its caller's: without this, importing and dropping a NumPy array takes 634
    /// instructions for 602, and writing one in place more than with rust-numpy.
    #[inline]
    fn runs_code(&self, py: Python<'_>) -> bool {
        !has_other_references(self.bind(py))
    }
}

impl NeedsInterpreter for Tensor {
    #[inline]
    fn release(self, _: Python<'_>) {
        if is_running() { drop(self) } else { std::mem::forget(self) }
    }
}

/// The tensor of a Python object.
///
/// Objects can be freed while an exception is set, and the deleter of a tensor that Rust code
/// imported from a raw pointer may be Python code. So it is released with the same care as an
/// imported tensor.
impl NeedsInterpreter for ArcTensor {
    #[inline]
    fn release(self, py: Python<'_>) {
        Tensor::from(self).release(py);
    }

    #[inline]
    fn is_needed(&self) -> bool {
        is_foreign(self)
    }
}

/// Owns a value that needs the interpreter, and can be dropped on any thread. It is the owner of a
/// tensor over a Python object's memory.
pub(crate) struct Owner<T: NeedsInterpreter>(ManuallyDrop<T>);

impl<T: NeedsInterpreter> Owner<T> {
    #[inline]
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: NeedsInterpreter> Deref for Owner<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: NeedsInterpreter + fmt::Debug> fmt::Debug for Owner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::fmt(self, f)
    }
}

impl<T: NeedsInterpreter> Drop for Owner<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: taken once, and not used again (R7).
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        if value.is_needed() {
            release(value);
        }
    }
}
