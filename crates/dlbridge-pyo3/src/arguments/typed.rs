//! `PyTensorOf`, a tensor argument whose dtype, rank and layout are checked on import.
//! Tensors of any dtype belong to `tensor`.
//! Invariant: host memory of `T`'s dtype, of rank `N`, that satisfies `C`.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use dlbridge::{Access, Element, Tensor, View, ViewMut};
use pyo3::Borrowed;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::{Metadata, Wanted};
use crate::error::error_of;
use crate::ffi::borrow::Borrowed as BorrowedMemory;
use crate::import::autograd;
use crate::import::import_tensor;
use crate::{Error, Result};

/// The rank of a [`PyTensorOf`] that accepts every rank.
pub const ANY_RANK: usize = usize::MAX;

/// A requirement of a [`PyTensorOf`] beyond dtype and rank: a marker, or a tuple of markers.
///
/// A marker of your own sees the [`Metadata`] of the argument:
///
/// ```
/// use dlbridge_pyo3::{Constraint, Metadata, PyTensorOf};
/// use pyo3::prelude::*;
///
/// struct Square;
///
/// impl Constraint for Square {
///     fn is_met(found: Metadata<'_>) -> bool {
///         matches!(found.shape(), [rows, columns] if rows == columns)
///     }
///
///     fn name(wanted: &mut String) {
///         wanted.push_str(", square");
///     }
/// }
///
/// #[pyfunction]
/// fn trace(matrix: PyTensorOf<f64, 2, Square>) -> f64 {
///     matrix.view().iter().step_by(matrix.extents()[0] + 1).sum()
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let trace = wrap_pyfunction!(trace, py)?;
/// let numpy = py.import("numpy")?;
/// assert_eq!(trace.call1((numpy.call_method1("identity", (3,))?,))?.extract::<f64>()?, 3.0);
/// let error = trace.call1((numpy.call_method1("ones", ((2, 3),))?,)).unwrap_err();
/// assert!(error.to_string().ends_with("on the host, square, found float64[2, 3] on cpu"));
/// # Ok(()) }).unwrap();
/// ```
///
/// It does not see the elements, because their memory is borrowed afterwards:
///
/// ```compile_fail,E0599
/// # use dlbridge_pyo3::{Constraint, Metadata};
/// struct Positive;
///
/// impl Constraint for Positive {
///     fn is_met(found: Metadata<'_>) -> bool {
///         found.view::<f64>().is_ok_and(|view| view.iter().all(|x| x > 0.0))
///     }
/// #     fn name(_: &mut String) {}
/// }
/// ```
pub trait Constraint {
    /// Whether read-only memory never meets the requirement, so that
    /// [`view_mut`](PyTensorOf::view_mut) is available.
    const WRITABLE: bool = false;

    /// The extents that are required, -1 for an axis of any extent; see [`Shape!`](crate::Shape!).
    const SHAPE: Option<&'static [i64]> = None;

    /// Whether an argument meets the requirement.
    fn is_met(found: Metadata<'_>) -> bool;

    /// Appends the requirement's name to the error message.
    fn name(wanted: &mut String);

    /// The call of Python that makes an array meet the requirement; empty for one that meets it.
    #[must_use]
    fn help(_found: Metadata<'_>) -> &'static str {
        ""
    }

    /// Rejects a Python object for a property that its tensor does not have. Called before the
    /// import.
    ///
    /// # Errors
    ///
    /// The exception that Python sees.
    #[inline]
    fn check_object(_: Borrowed<'_, '_, PyAny>) -> Result<()> {
        Ok(())
    }
}

macro_rules! markers {
    ($(
        $(#[$doc:meta])*
        $name:ident, $word:literal, $help:literal, |$found:ident| $check:expr $(, object: $check_object:path, writable: $writable:literal)?;
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl Constraint for $name {
            #[inline]
            fn is_met($found: Metadata<'_>) -> bool {
                $check
            }

            fn name(wanted: &mut String) {
                wanted.push_str(concat!(", ", $word));
            }

            fn help(found: Metadata<'_>) -> &'static str {
                if Self::is_met(found) { "" } else { $help }
            }
            $(
                const WRITABLE: bool = $writable;

                #[inline(always)]
                fn check_object(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
                    $check_object(object)
                }
            )?
        }
    )*};
}

markers! {
    /// Contiguous elements in row-major order, that of C and the default of NumPy; see [`ColumnMajor`] and
    /// [`AnyContiguous`] for others.
    Contiguous, "contiguous", "np.ascontiguousarray(x)", |found| found.is_contiguous();
    /// Contiguous elements in column-major order, as in Fortran and Julia.
    ColumnMajor, "column-major", "np.asfortranarray(x)",
        |found| found.is_column_major();
    /// Contiguous elements in row-major or in column-major order, for functions that use each element once, wherever
    /// it is; see [`as_slice_memory_order`](PyTensorOf::as_slice_memory_order).
    AnyContiguous, "contiguous in either order", "np.ascontiguousarray(x)",
        |found| found.is_contiguous() || found.is_column_major();
    /// Writable memory, in which no two elements overlap. A tensor from a legacy capsule is rejected, since a legacy capsule does not
    /// say whether it is writable. A PyTorch or Paddle tensor that requires grad is rejected,
    /// whether it is a leaf or not: automatic differentiation would not record the write, and
    /// gradients would be wrong.
    Writable, "writable", "a copy: np.array(x), in PyTorch x.clone()", |found| !found.is_read_only() && !found.may_overlap(), object: autograd::check,
        writable: true;
    /// No gradients. A PyTorch or Paddle tensor that requires grad is rejected: without this constraint its values are
    /// read, and the result is outside of its graph. (An operator of `dlbridge-operators` has gradients.)
    NoGrad, "without gradients", "x.detach()", |_found| true, object: autograd::check_read, writable: false;
}

macro_rules! tuples {
    ($(($($name:ident),*))*) => {$(
        impl<$($name: Constraint),*> Constraint for ($($name,)*) {
            const WRITABLE: bool = false $(|| $name::WRITABLE)*;

            const SHAPE: Option<&'static [i64]> = {
                let shape = None;
                $(let shape = match shape { None => $name::SHAPE, found => found };)*
                shape
            };

            fn is_met(_found: Metadata<'_>) -> bool {
                true $(&& $name::is_met(_found))*
            }

            fn name(_wanted: &mut String) {
                $($name::name(_wanted);)*
            }

            fn help(_found: Metadata<'_>) -> &'static str {
                let helps: &[&str] = &[$($name::help(_found)),*];
                helps.iter().find(|help| !help.is_empty()).unwrap_or(&"")
            }

            fn check_object(_object: Borrowed<'_, '_, PyAny>) -> Result<()> {
                $($name::check_object(_object)?;)*
                Ok(())
            }
        }
    )*};
}

tuples! { () (A, B) (A, B, C) }

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
///     (0..rows.min(columns)).filter_map(|i| view.get(&[i, i])).sum()
/// }
///
/// #[pyfunction]
/// fn first(list: PyTensorOf<f32, 1, Contiguous>) -> Option<f32> {
///     list.view().get(&[0])
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
/// # let matrix = Tensor::builder(vec![1.0_f32, 2.0, 3.0, 4.0]).shape(&[2, 2]).build().unwrap();
/// # assert_eq!(trace.call1((PyTensor::from(matrix),))?.extract::<f32>()?, 5.0);
/// # Ok(()) }).unwrap();
/// ```
pub struct PyTensorOf<T, const N: usize = ANY_RANK, C = ()> {
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
pub type PyTensorMut<T, const N: usize = ANY_RANK> = PyTensorOf<T, N, Writable>;

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
        Self::borrowing(tensor)
    }

    /// Checks a tensor that was just imported, and borrows its memory.
    #[inline]
    fn borrowing(tensor: Tensor) -> Result<Self> {
        const {
            let is_one = match C::SHAPE {
                Some(shape) => N == ANY_RANK || N == shape.len(),
                None => true,
            };
            assert!(
                is_one,
                "the constraint `Shape!` has another rank: `PyTensorOf<T, 3, Shape![_, _, 3]>` has 3 axes in both"
            );
        }
        let fits = tensor.dtype() == T::DTYPE
            && (N == ANY_RANK || tensor.rank() == N)
            && tensor.device().is_host_accessible()
            && C::is_met(Metadata::of(&tensor));
        if !fits {
            return Err(Self::refusal(&tensor));
        }
        let memory = match C::WRITABLE {
            true => BorrowedMemory::write(tensor),
            false => BorrowedMemory::read(tensor),
        };
        Ok(Self { memory: memory?, wanted: PhantomData })
    }

    #[cold]
    fn refusal(tensor: &Tensor) -> Error {
        let (name, help, writable) = (C::name, C::help, C::WRITABLE);
        Wanted { dtype: T::DTYPE, rank: N, shape: C::SHAPE, writable, name, help }.refusal(tensor)
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
    /// ```compile_fail,E0080
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
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        const {
            assert!(
                C::WRITABLE,
                "`view_mut()` needs the constraint `Writable`: take a `PyTensorMut<T, N>`"
            );
        }
        self.memory.view_mut().unwrap_or_else(|error| error.impossible())
    }

    /// The extents, outermost axis first. Does not compile for [`ANY_RANK`]; use
    /// [`shape`](Tensor::shape) there.
    #[must_use]
    pub fn extents(&self) -> [usize; N] {
        const {
            assert!(
                N != ANY_RANK,
                "`extents()` needs a rank, as `PyTensorOf<T, 2>` has; `shape()` is there for any rank"
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
        Self::borrowing(import_tensor(object)?)
    }
}
