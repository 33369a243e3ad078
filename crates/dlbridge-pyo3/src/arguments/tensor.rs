//! `PyTensor`, a tensor in the signature of a Python function.
//! The Python class belongs to `object`, the protocol to `import`.

use std::ops::{Deref, DerefMut};

use dlbridge::{Element, Tensor, View};
use pyo3::Borrowed;
#[cfg(type_hints)]
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;

#[cfg(type_hints)]
use super::hints;

use crate::ffi::borrow::Borrowed as BorrowedMemory;
use crate::import::import_argument;
use crate::{Error, PyTensorOf, Stream, TensorObject};

/// A tensor, or a vector or an array that becomes one without a copy: every type with `Into<Tensor>`.
///
/// It is a trait of its own because the compiler's message about any other type then names the features.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not become a tensor",
    note = "arrays of another crate need the feature of `dlbridge` for that crate's version, such as `ndarray-0_17`; \
            `cargo tree -i ndarray` shows which versions a program has",
    note = "the rows of a `Vec<Vec<T>>` become one tensor: `Tensor::builder(rows.concat()).shape([n, m]).build()?`",
    note = "a `?` takes the tensor out of a `Result`; `view.map_to_tensor(|value| value)?` copies a view"
)]
pub trait IntoTensor {
    /// Converts into a tensor.
    fn into_tensor(self) -> Tensor;
}

#[diagnostic::do_not_recommend]
impl<S: Into<Tensor>> IntoTensor for S {
    #[inline(always)]
    fn into_tensor(self) -> Tensor {
        self.into()
    }
}

/// A tensor as an argument or a result of a Python function.
///
/// As an argument it accepts any array that [`import`](crate::import()) accepts, and uses the same
/// memory. As a result it becomes a `dlbridge.Tensor`. It dereferences to [`Tensor`].
///
/// As an argument it borrows the memory until it is dropped: a call that also writes a part of it, by a
/// [`PyTensorMut`](crate::PyTensorMut), is a `TypeError`, on whichever thread.
///
/// It can be dropped on any thread, attached to the interpreter or detached. The drop never waits
/// for the GIL: a deleter that needs it is called soon after, by a thread that is attached.
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge_pyo3::PyTensor;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn ones(len: usize) -> PyTensor {
///     Tensor::from(vec![1.0_f32; len]).into()
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let ones = wrap_pyfunction!(ones, py)?;
/// let tensor = ones.call1((3,))?;
/// assert!(tensor.repr()?.to_string().ends_with("shape=(3,), dtype=float32, device=cpu)"));
/// # Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct PyTensor(BorrowedMemory);

impl PyTensor {
    /// Wraps a [`Tensor`], or a vector or array that becomes one without a copy.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensor, Result};
    /// use pyo3::prelude::*;
    ///
    /// #[pyfunction]
    /// fn squares(py: Python<'_>) -> Result<Bound<'_, PyAny>> {
    ///     PyTensor::new(vec![0.0, 1.0, 4.0]).into_numpy(py)
    /// }
    /// ```
    #[must_use]
    #[inline]
    pub fn new(source: impl IntoTensor) -> Self {
        Self(BorrowedMemory::unborrowed(source.into_tensor()))
    }

    /// As [`Tensor::view`], with an error that a `?` converts in a `PyResult` as well.
    ///
    /// # Errors
    ///
    /// Those of [`Tensor::view`].
    #[inline(always)]
    pub fn view<T: Element>(&self) -> crate::Result<View<'_, T>> {
        Ok(self.0.tensor().view()?)
    }

    /// Returns the tensor. That of an argument borrows the memory to read for as long as Rust has it or a part
    /// of it, so that an argument to write over the same memory is a `TypeError`.
    #[must_use]
    #[inline]
    pub fn into_inner(self) -> Tensor {
        self.0.into_kept()
    }

    /// The tensor for Python, which needs no borrow.
    #[inline]
    pub(crate) fn into_given(self) -> Tensor {
        self.0.into_given()
    }

    /// Makes a Python object whose device memory is ready after the work that is queued on `stream`
    /// now; see [`TensorObject::ready_after`]. A tensor made from a CUDA slice does not need this:
    /// it reports its own stream.
    ///
    /// # Errors
    ///
    /// Those of [`TensorObject::ready_after`].
    pub fn ready_after(self, stream: Stream) -> crate::Result<TensorObject> {
        TensorObject::new(self.into_given()).ready_after(stream)
    }
}

/// As [`PyTensor::new`], for each type that becomes a tensor without a copy.
///
/// ```
/// use dlbridge_pyo3::PyTensor;
/// use ndarray::Array2;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn squares(len: i64) -> PyTensor {
///     (0..len).map(|number| number * number).collect::<Vec<_>>().into()
/// }
///
/// #[pyfunction]
/// fn eye(n: usize) -> PyTensor {
///     Array2::<f32>::eye(n).into()
/// }
/// ```
impl<S: Into<Tensor>> From<S> for PyTensor {
    fn from(source: S) -> Self {
        Self::new(source.into())
    }
}

/// The same argument without its type, which borrows the memory as before.
///
/// ```
/// use dlbridge_pyo3::{PyTensor, PyTensorOf};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn same(x: PyTensorOf<f32, 2>) -> PyTensor {
///     x.into()
/// }
/// ```
impl<T, const N: usize, C> From<PyTensorOf<T, N, C>> for PyTensor {
    fn from(tensor: PyTensorOf<T, N, C>) -> Self {
        Self(tensor.memory)
    }
}

// No `From<PyTensor> for Tensor`: with it, `From` of itself would be written twice.
impl IntoTensor for PyTensor {
    fn into_tensor(self) -> Tensor {
        self.into_inner()
    }
}

impl Deref for PyTensor {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.0.tensor()
    }
}

impl DerefMut for PyTensor {
    fn deref_mut(&mut self) -> &mut Tensor {
        self.0.tensor_mut()
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyTensor {
    type Error = Error;

    #[cfg(type_hints)]
    const INPUT_TYPE: PyStaticExpr = hints::ARRAY;

    #[inline]
    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self, Error> {
        let mut memory = import_argument(object)?;
        memory.read()?;
        Ok(Self(memory))
    }
}

impl<'py> IntoPyObject<'py> for PyTensor {
    type Target = TensorObject;
    type Output = Bound<'py, TensorObject>;
    type Error = PyErr;

    #[cfg(type_hints)]
    const OUTPUT_TYPE: PyStaticExpr = hints::TENSOR;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        TensorObject::made(py, self.into_given())
    }
}
