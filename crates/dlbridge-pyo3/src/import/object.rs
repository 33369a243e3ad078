//! Imports a Python object into a `dlbridge.Tensor`.

use pyo3::Borrowed;
use pyo3::prelude::*;

use super::{ImportOptions, Imported, autograd, import};
use crate::{Result, TensorObject};

impl TensorObject {
    /// Imports a Python object as [`import`](crate::import()) does, and stores the stream after
    /// whose work device memory is ready, for the consumers of this object.
    ///
    /// # Errors
    ///
    /// Those of [`import`](crate::import()) and of [`ready_after`](Self::ready_after).
    pub fn import(object: Borrowed<'_, '_, PyAny>, options: ImportOptions) -> Result<Self> {
        let requires_grad = autograd::requires_grad(object)?;
        let Imported { tensor, stream, .. } = import(object, options)?;
        let requires_grad = requires_grad && !tensor.is_copied();
        Self::imported(tensor, stream, requires_grad)
    }
}
