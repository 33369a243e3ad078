//! `CallerArray`, an argument that keeps the caller's object, and `Output`, the result of a function
//! with an `out` argument. The checks of the array belong to `PyTensorOf`.

use std::fmt;
use std::ops::{Deref, DerefMut};

use dlbridge::{Element, ViewMut};
use pyo3::Borrowed;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::Allocator;
use crate::error::error_of;
use crate::{ANY_NDIM, Constraint, Error, IntoTensor, PyTensor, PyTensorOf, Result, Writable};

/// A [`PyTensorOf`] that keeps the caller's object, so that a result gets the type of the argument.
///
/// ```
/// use dlbridge_pyo3::{CallerArray, Result};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn roots<'py>(x: CallerArray<'py, f64>) -> Result<Bound<'py, PyAny>> {
///     x.to_caller(x.view().map_to_tensor(f64::sqrt)?)
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let roots = wrap_pyfunction!(roots, py)?;
/// let x = py.import("numpy")?.call_method1("array", ([4.0, 9.0],))?;
/// assert_eq!(roots.call1((x,))?.repr()?.to_string(), "array([2., 3.])");
/// # Ok(()) }).unwrap();
/// ```
///
/// It dereferences to the `PyTensorOf`. A [detached](Python::detach) closure does not capture a Python
/// object; it captures a view: `let view = x.view(); py.detach(|| view.iter().sum())`.
pub struct CallerArray<'py, T, const N: usize = ANY_NDIM, C = ()> {
    tensor: PyTensorOf<T, N, C>,
    object: Bound<'py, PyAny>,
}

impl<'py, T, const N: usize, C> CallerArray<'py, T, N, C> {
    /// The caller's object.
    #[must_use]
    pub fn object(&self) -> &Bound<'py, PyAny> {
        &self.object
    }

    /// Makes an array of the caller's type; see [`PyTensor::to_caller`].
    ///
    /// # Errors
    ///
    /// Those of [`PyTensor::to_caller`].
    pub fn to_caller(&self, result: impl IntoTensor) -> Result<Bound<'py, PyAny>> {
        PyTensor::new(result).to_caller(&self.object)
    }

    /// The array that a function writes its result to: the caller's `out`, or new memory of the caller's
    /// framework.
    ///
    /// ```
    /// use dlbridge_pyo3::{ANY_NDIM, CallerArray, Result, Writable};
    /// use pyo3::prelude::*;
    ///
    /// type Out<'py> = Option<CallerArray<'py, f64, ANY_NDIM, Writable>>;
    ///
    /// #[pyfunction]
    /// #[pyo3(signature = (x, out = None))]
    /// fn double<'py>(x: CallerArray<'py, f64>, out: Out<'py>) -> Result<Bound<'py, PyAny>> {
    ///     let mut out = x.output(x.shape(), out)?;
    ///     out.view_mut()?.zip_inplace(&x.view(), |_, x| 2.0 * x)?;
    ///     out.into_object()
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let double = wrap_pyfunction!(double, py)?;
    /// let numpy = py.import("numpy")?;
    /// let (x, out) = (numpy.call_method1("ones", (2,))?, numpy.call_method1("zeros", (2,))?);
    /// assert!(double.call1((&x, &out))?.is(&out));
    /// assert_eq!(out.repr()?.to_string(), "array([2., 2.])");
    /// assert_eq!(double.call1((&x,))?.repr()?.to_string(), "array([2., 2.])");
    /// # let error = double.call1((&x, numpy.call_method1("zeros", (3,))?)).unwrap_err();
    /// # assert!(error.to_string().ends_with("out: expected shape [2], found [3]"), "{error}");
    /// # double.call1((&x, &x)).unwrap_err();
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// A `ValueError` for an `out` of another shape; the framework's own exception where it cannot
    /// allocate.
    pub fn output<U: Element, const M: usize>(
        &self,
        shape: &[i64],
        out: Option<CallerArray<'py, U, M, Writable>>,
    ) -> Result<Output<'py, U, M>> {
        match out {
            None => {
                let tensor = Allocator::of(&self.object).zeros::<U>(shape)?;
                Ok(Output(Place::New { tensor, like: self.object.clone() }))
            }
            Some(out) if out.shape() == shape => Ok(Output(Place::Caller(out))),
            Some(out) => {
                let message = format!("out: expected shape {shape:?}, found {:?}", out.shape());
                Err(Error::from(error_of::<PyValueError>(message)))
            }
        }
    }
}

impl<T, const N: usize, C> fmt::Debug for CallerArray<'_, T, N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CallerArray").field(&self.tensor).finish()
    }
}

impl<T, const N: usize, C> Deref for CallerArray<'_, T, N, C> {
    type Target = PyTensorOf<T, N, C>;

    fn deref(&self) -> &PyTensorOf<T, N, C> {
        &self.tensor
    }
}

impl<T, const N: usize, C> DerefMut for CallerArray<'_, T, N, C> {
    fn deref_mut(&mut self) -> &mut PyTensorOf<T, N, C> {
        &mut self.tensor
    }
}

impl<'py, T, const N: usize, C> FromPyObject<'_, 'py> for CallerArray<'py, T, N, C>
where
    T: Element,
    C: Constraint,
{
    type Error = Error;

    #[cfg(type_hints)]
    const INPUT_TYPE: pyo3::inspect::PyStaticExpr = crate::arguments::hints::ARRAY;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> Result<Self> {
        Ok(Self { tensor: object.extract()?, object: object.to_owned() })
    }
}

/// Where a function writes its result; from [`CallerArray::output`].
#[derive(Debug)]
pub struct Output<'py, T, const N: usize = ANY_NDIM>(Place<'py, T, N>);

#[derive(Debug)]
enum Place<'py, T, const N: usize> {
    Caller(CallerArray<'py, T, N, Writable>),
    New { tensor: PyTensor, like: Bound<'py, PyAny> },
}

impl<'py, T: Element, const N: usize> Output<'py, T, N> {
    /// A view to write the elements; those of new memory are 0.
    ///
    /// # Errors
    ///
    /// None for memory that [`CallerArray::output`] allocated on the host.
    pub fn view_mut(&mut self) -> Result<ViewMut<'_, T>> {
        match &mut self.0 {
            Place::Caller(out) => Ok(out.view_mut()),
            Place::New { tensor, .. } => Ok(tensor.view_mut()?),
        }
    }

    /// The object to return: the caller's `out`, or an array of the caller's type.
    ///
    /// # Errors
    ///
    /// Those of [`PyTensor::to_caller`], for new memory.
    pub fn into_object(self) -> Result<Bound<'py, PyAny>> {
        match self.0 {
            Place::Caller(out) => Ok(out.object),
            Place::New { tensor, like } => tensor.to_caller(&like),
        }
    }
}
