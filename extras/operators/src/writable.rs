//! `Writable`: the proof that an array of Python is borrowed to be written.

use std::ops::Deref;

use dlbridge::{Element, Tensor};
use dlbridge_pyo3::PyTensorMut;

/// An array of Python that is borrowed to be written, until this is dropped.
pub(crate) struct Writable(Box<dyn Deref<Target = Tensor>>);

impl Writable {
    pub(crate) fn of<T: Element>(tensor: PyTensorMut<T>) -> Self {
        Self(Box::new(tensor))
    }

    pub(crate) fn tensor(&self) -> &Tensor {
        &self.0
    }
}
