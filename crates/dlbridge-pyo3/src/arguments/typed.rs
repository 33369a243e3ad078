//! `PyTensorOf`, a tensor argument whose dtype, ndim and layout are checked on import.
//! Tensors of any dtype belong to `tensor`.
//! Invariant: host memory of `T`'s dtype, of ndim `N`, that satisfies `C`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Index};

use dlbridge::{Access, ByReference, Element, Iter, Tensor, View, ViewMut};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::constraint::{Constraint, Metadata, ToWrite, Writable};
use super::{IntoTensor, PyTensor, Wanted};
use crate::error::error_of;
use crate::ffi::borrow::Borrowed as BorrowedMemory;
use crate::import::import_argument;
use crate::{Error, Result};

/// The ndim of a [`PyTensorOf`] that accepts any number of axes.
pub const ANY_NDIM: usize = usize::MAX;

/// A tensor in host memory, with elements of type `T`, `N` axes, and the requirements `C`.
///
/// A mismatch raises a `TypeError` that names what was expected and what was found:
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge_pyo3::{Contiguous, PyTensor, PyTensorOf};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn trace(matrix: PyTensorOf<f32, 2>) -> f32 {
///     let [rows, columns] = matrix.extents();
///     let view = matrix.view();
///     (0..rows.min(columns)).filter_map(|i| view.get([i, i])).sum()
/// }
///
/// #[pyfunction]
/// fn first(list: PyTensorOf<f32, 1, Contiguous>) -> Option<f32> {
///     list.view().get([0])
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let trace = wrap_pyfunction!(trace, py)?;
/// # let first = wrap_pyfunction!(first, py)?;
/// let integers = PyTensor::new(vec![1_i64, 2, 3]);
/// let error = trace.call1((integers,)).unwrap_err();
/// assert!(error.to_string().contains("expected float32[?, ?] on the host, found int64[3] on cpu"));
/// # let list = PyTensor::new(vec![1.5_f32]);
/// # assert_eq!(first.call1((list,))?.extract::<f32>()?, 1.5);
/// # let matrix = Tensor::builder(vec![1.0_f32, 2.0, 3.0, 4.0]).shape([2, 2]).build().unwrap();
/// # assert_eq!(trace.call1((PyTensor::from(matrix),))?.extract::<f32>()?, 5.0);
/// # Ok(()) }).unwrap();
/// ```
pub struct PyTensorOf<T, const N: usize = ANY_NDIM, C = ()> {
    pub(super) memory: BorrowedMemory,
    wanted: PhantomData<fn() -> (T, C)>,
}

/// A tensor to write in place, with elements of type `T` and `N` axes, or any number of them.
///
/// ```
/// use dlbridge_pyo3::PyTensorMut;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn double(mut x: PyTensorMut<f32>) {
///     x.view_mut().map_inplace(|value| 2.0 * value);
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let x = py.import("numpy")?.call_method1("ones", ((1, 2), "float32"))?;
/// # wrap_pyfunction!(double, py)?.call1((&x,))?;
/// # assert_eq!(x.repr()?.to_string(), "array([[2., 2.]], dtype=float32)");
/// # Ok(()) }).unwrap();
/// ```
pub type PyTensorMut<T, const N: usize = ANY_NDIM> = PyTensorOf<T, N, Writable>;

impl<T: Element, const N: usize, C: Constraint> PyTensorOf<T, N, C> {
    /// Checks a tensor, and borrows its memory as an argument does.
    ///
    /// Memory of class [`Shared`](dlbridge::Access::Shared) is not written through a tensor that Rust
    /// already has, since there may be other tensors over it: extract the argument from its object.
    ///
    /// # Errors
    ///
    /// A `TypeError` that names what was expected and what was found.
    pub fn new(tensor: Tensor) -> Result<Self> {
        if C::WRITABLE && tensor.access() == Access::Shared {
            return Err(Error::from(error_of::<PyTypeError>(
                "expected memory that no other tensor has, found shared memory; extract the \
                 `PyTensorMut` from the Python object",
            )));
        }
        Self::borrowing(BorrowedMemory::unborrowed(tensor), None)
    }

    /// Checks memory, and borrows it: to write if it was just imported, on this `attached` thread.
    #[inline]
    pub(super) fn borrowing(
        mut memory: BorrowedMemory,
        attached: Option<Python<'_>>,
    ) -> Result<Self> {
        const {
            let is_one = match C::SHAPE {
                Some(shape) => N == ANY_NDIM || N == shape.len(),
                None => true,
            };
            assert!(
                is_one,
                "the constraint `Shape!` has another number of axes: `PyTensorOf<T, 3, Shape![_, _, 3]>` has 3 axes in both"
            );
        }
        let tensor = memory.tensor();
        let fits = tensor.dtype() == T::DTYPE
            && (N == ANY_NDIM || tensor.ndim() == N)
            && tensor.device().is_host_accessible()
            && C::is_met(Metadata::of(tensor));
        if !fits {
            return Err(Self::refusal(tensor));
        }
        match attached {
            Some(py) if C::WRITABLE => memory.write(py)?,
            None if C::WRITABLE => {}
            _ => memory.read()?,
        }
        Ok(Self { memory, wanted: PhantomData })
    }

    #[cold]
    fn refusal(tensor: &Tensor) -> Error {
        let (name, help, writable) = (C::name, C::help, C::WRITABLE);
        Wanted { dtype: T::DTYPE, ndim: N, shape: C::SHAPE, writable, name, help }.refusal(tensor)
    }

    /// A view to write the caller's array in place, by value.
    ///
    /// No other argument of this or another call has the memory, so the view may go to other threads:
    /// disjoint parts of it are written at the same time, also while the function is detached.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensorMut, Result};
    /// use pyo3::prelude::*;
    /// use rayon::prelude::*;
    ///
    /// /// Divides each row by its sum, in place, on all cores and without the GIL.
    /// #[pyfunction]
    /// fn normalise(py: Python<'_>, mut x: PyTensorMut<f64, 2>) -> Result<()> {
    ///     py.detach(|| {
    ///         x.view_mut().par_rows_mut()?.for_each(|mut row| {
    ///             let sum: f64 = row.as_view().iter().sum();
    ///             row.map_inplace(|value| value / sum);
    ///         });
    ///         Ok(())
    ///     })
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let x = py.import("numpy")?.call_method1("ones", ((2, 4),))?;
    /// # wrap_pyfunction!(normalise, py)?.call1((&x,))?;
    /// # assert_eq!(x.get_item((1, 3))?.extract::<f64>()?, 0.25);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// What Python code and frameworks do with the array meanwhile is up to the caller (`SAFETY.md`, T6).
    /// Does not compile without the constraint [`Writable`]:
    ///
    /// ```compile_fail,E0277
    /// # use dlbridge_pyo3::{Contiguous, PyTensorOf};
    /// # let tensor = dlbridge::Tensor::from(vec![1.0_f32]);
    /// let mut x = PyTensorOf::<f32, 1, Contiguous>::new(tensor).unwrap();
    /// x.view_mut().fill(0.0);
    /// ```
    ///
    /// An argument has one view at a time, and none while a slice is borrowed from it:
    ///
    /// ```compile_fail,E0499
    /// # use dlbridge_pyo3::PyTensorMut;
    /// fn zero(mut x: PyTensorMut<f32>) {
    ///     let mut view = x.view_mut();
    ///     x.view_mut().fill(1.0);
    ///     view.fill(0.0);
    /// }
    /// ```
    #[must_use]
    pub fn view_mut(&mut self) -> ViewMut<'_, T>
    where
        C: ToWrite,
    {
        self.memory_mut().view_mut().unwrap_or_else(|error| error.impossible())
    }

    /// The memory, which is borrowed to write, or which no other tensor has.
    #[inline(always)]
    pub(super) fn memory_mut(&mut self) -> &mut BorrowedMemory
    where
        C: ToWrite,
    {
        const { assert!(C::WRITABLE, "a constraint with `ToWrite` has `const WRITABLE: bool = true`") };
        &mut self.memory
    }

    /// The extents, outermost axis first. Does not compile for [`ANY_NDIM`]; use
    /// [`shape`](Tensor::shape) there.
    #[must_use]
    pub fn extents(&self) -> [usize; N] {
        const {
            assert!(
                N != ANY_NDIM,
                "`extents()` needs an ndim, as `PyTensorOf<T, 2>` has; `shape()` is there for any number of axes"
            );
        }
        let mut extents = [0; N];
        for (to, &from) in extents.iter_mut().zip(self.shape()) {
            *to = from as usize;
        }
        extents
    }

    /// Returns the tensor, as [`PyTensor::into_inner`](crate::PyTensor::into_inner) does.
    #[must_use]
    pub fn into_inner(self) -> Tensor {
        self.memory.into_kept()
    }
}

// The bound is one of the method: with one of the block, the compiler would look for the tensor's `view` in a helper that
// forgets it.
impl<T, const N: usize, C> PyTensorOf<T, N, C> {
    /// A view of the elements, which are read by value.
    #[inline]
    #[must_use]
    pub fn view(&self) -> View<'_, T>
    where
        T: Element,
    {
        self.memory.tensor().view().unwrap_or_else(|error| Error::from(error).impossible())
    }

    /// The elements in row-major order: `view().iter()`.
    #[inline]
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T>
    where
        T: Element,
    {
        self.view().iter()
    }

    /// A copy of the elements in row-major order: `view().to_vec()`.
    ///
    /// # Panics
    ///
    /// If the vector cannot be allocated; see [`View::to_vec`].
    #[must_use]
    #[track_caller]
    pub fn to_vec(&self) -> Vec<T>
    where
        T: Element,
    {
        self.view().to_vec()
    }

    /// Is never called: its message is what a `to_caller` without the caller's object shows.
    #[doc(hidden)]
    pub fn to_caller<'py>(&self, _: impl IntoTensor) -> Result<Bound<'py, PyAny>>
    where
        Self: KeepsCaller,
    {
        KeepsCaller::never(self)
    }
}

/// No type implements it.
#[diagnostic::on_unimplemented(
    message = "a `PyTensorOf` does not keep the caller's object",
    note = "take a `CallerArray<'py, T, N>`, which does, and is a `PyTensorOf` otherwise",
    note = "with the object, `PyTensor::new(result).to_caller(&object)` makes an array of its type"
)]
pub trait KeepsCaller {
    /// Is never called.
    fn never(&self) -> !;
}

impl<'v, T: Element, const N: usize, C> IntoIterator for &'v PyTensorOf<T, N, C> {
    type Item = T;
    type IntoIter = Iter<'v, T>;

    #[inline]
    fn into_iter(self) -> Iter<'v, T> {
        self.iter()
    }
}

// Its message is that of a view that is indexed.
#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, const N: usize, C, I> Index<I> for PyTensorOf<T, N, C>
where
    Self: ByReference,
{
    type Output = T;

    fn index(&self, _: I) -> &T {
        ByReference::never(self)
    }
}

/// Checks the tensor, as [`PyTensorOf::new`] does.
///
/// ```
/// use dlbridge_pyo3::{PyTensor, PyTensorOf, Result};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn length(x: PyTensor) -> Result<usize> {
///     let x: PyTensorOf<f32, 2> = x.try_into()?;
///     Ok(x.len())
/// }
/// ```
impl<T: Element, const N: usize, C: Constraint> TryFrom<PyTensor> for PyTensorOf<T, N, C> {
    type Error = Error;

    fn try_from(tensor: PyTensor) -> Result<Self> {
        Self::new(tensor.into_inner())
    }
}

// Not derived, which would ask the marker `C` for it as well.
impl<T, const N: usize, C> fmt::Debug for PyTensorOf<T, N, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PyTensorOf").field(self.memory.tensor()).finish()
    }
}

impl<T, const N: usize, C> Deref for PyTensorOf<T, N, C> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        self.memory.tensor()
    }
}

impl<'a, 'py, T, const N: usize, C> FromPyObject<'a, 'py> for PyTensorOf<T, N, C>
where
    T: Element,
    C: Constraint,
{
    type Error = Error;

    #[cfg(type_hints)]
    const INPUT_TYPE: pyo3::inspect::PyStaticExpr = super::hints::ARRAY;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self> {
        C::check_object(object)?;
        Self::borrowing(import_argument(object)?, Some(object.py()))
    }
}
