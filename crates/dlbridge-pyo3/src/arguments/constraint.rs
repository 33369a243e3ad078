//! What a `PyTensorOf` requires beyond dtype and ndim: constraints, `Shape!` among them, and `Metadata`, the description
//! of an argument that they see.
//! Invariant: no element can be reached from `Metadata`, because the memory is not yet borrowed.

use std::fmt;

use dlbridge::{DType, Device, Flags, Tensor, layout};
use pyo3::Borrowed;
use pyo3::prelude::*;

use crate::Result;
use crate::import;

/// A requirement of a [`PyTensorOf`](crate::PyTensorOf) beyond dtype and ndim: a marker, or a tuple of markers.
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
    /// Whether read-only memory never meets the requirement, and the argument borrows its memory to write.
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
    /// it is; see [`as_slice_memory_order`](crate::PyTensorOf::as_slice_memory_order).
    AnyContiguous, "contiguous in either order", "np.ascontiguousarray(x)",
        |found| found.is_contiguous() || found.is_column_major();
    /// Writable memory, in which no two elements overlap. A tensor from a legacy capsule is rejected, since a legacy capsule does not
    /// say whether it is writable. A PyTorch or Paddle tensor that requires grad is rejected,
    /// whether it is a leaf or not: automatic differentiation would not record the write, and
    /// gradients would be wrong.
    Writable, "writable", "a copy: np.array(x), in PyTorch x.clone()", |found| !found.is_read_only() && !found.may_overlap(), object: import::refuse_grad_to_write,
        writable: true;
    /// No gradients. A PyTorch or Paddle tensor that requires grad is rejected: without this constraint its values are
    /// read, and the result is outside of its graph. (An operator of `dlbridge-operators` has gradients.)
    NoGrad, "without gradients", "x.detach()", |_found| true, object: import::refuse_grad, writable: false;
}

/// Constraints of an argument to write: [`Writable`], or a tuple that ends with it.
///
/// A marker of one's own has [`WRITABLE`](Constraint::WRITABLE) as well. Without it the argument is borrowed to read, and what
/// writes does not compile:
///
/// ```compile_fail,E0080
/// # use dlbridge_pyo3::{Constraint, Metadata, PyTensorOf, ToWrite};
/// struct Mine;
///
/// impl Constraint for Mine {
///     fn is_met(_: Metadata<'_>) -> bool {
///         true
///     }
///
///     fn name(_: &mut String) {}
/// }
///
/// impl ToWrite for Mine {}
///
/// let mut x = PyTensorOf::<f32, 1, Mine>::new(dlbridge::Tensor::from(vec![1.0_f32]))?;
/// x.view_mut();
/// # Ok::<(), dlbridge_pyo3::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "an argument that is written has the constraint `Writable`",
    label = "the argument is to be read, or has another constraint behind `Writable`",
    note = "take a `PyTensorMut<T, N>`, or a `PyTensorOf<T, N, (Stable, Writable)>` where references need a promise",
    note = "the marker is the last in a tuple: `(Contiguous, Writable)`"
)]
pub trait ToWrite: Constraint {}

impl ToWrite for Writable {}
impl<A: Constraint> ToWrite for (A, Writable) {}
impl<A: Constraint, B: Constraint> ToWrite for (A, B, Writable) {}

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

/// The shape, strides, dtype, device and flags of an argument, without its elements: what a
/// [`Constraint`](crate::Constraint) sees.
///
/// A constraint is checked before the memory is borrowed, while another argument may still write it.
#[derive(Clone, Copy)]
pub struct Metadata<'a>(&'a Tensor);

impl<'a> Metadata<'a> {
    #[inline]
    pub(super) fn of(tensor: &'a Tensor) -> Self {
        Self(tensor)
    }

    /// The extents, outermost axis first.
    #[must_use]
    #[inline]
    pub fn shape(self) -> &'a [i64] {
        self.0.shape()
    }

    /// The strides in elements.
    #[must_use]
    #[inline]
    pub fn strides(self) -> &'a [i64] {
        self.0.strides()
    }

    /// The number of axes.
    #[must_use]
    #[inline]
    pub fn ndim(self) -> usize {
        self.0.ndim()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The dtype of the elements.
    #[must_use]
    pub fn dtype(self) -> DType {
        self.0.dtype()
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(self) -> Device {
        self.0.device()
    }

    /// The flags of DLPack.
    #[must_use]
    pub fn flags(self) -> Flags {
        self.0.flags()
    }

    /// Whether the memory must not be written.
    #[must_use]
    #[inline]
    pub fn is_read_only(self) -> bool {
        self.0.is_read_only()
    }

    /// Whether the elements are contiguous in row-major order.
    #[must_use]
    #[inline]
    pub fn is_contiguous(self) -> bool {
        self.0.is_contiguous()
    }

    /// Whether the elements are contiguous in column-major order.
    #[must_use]
    pub fn is_column_major(self) -> bool {
        layout::is_column_major(self.shape(), self.strides())
    }

    /// Whether two indices may reach the same element, as in a broadcast. A few unusual layouts without overlap are
    /// not recognised.
    #[must_use]
    #[inline]
    pub fn may_overlap(self) -> bool {
        layout::may_overlap(self.shape(), self.strides())
    }
}

impl fmt::Debug for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("dtype", &format_args!("{}", self.dtype()))
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("device", &format_args!("{}", self.device()))
            .field("flags", &format_args!("{}", self.flags()))
            .finish()
    }
}

/// A constraint of a [`PyTensorOf`](crate::PyTensorOf): fixed extents, up to 8 axes. `_` is an axis
/// of any extent.
///
/// ```
/// use dlbridge::{Parts, Tensor};
/// use dlbridge_pyo3::{PyTensor, PyTensorOf, Shape, Writable};
/// use pyo3::prelude::*;
///
/// /// The red pixels of a picture of height x width x 3 bytes.
/// #[pyfunction]
/// fn red(image: PyTensorOf<u8, 3, Shape![_, _, 3]>) -> dlbridge_pyo3::Result<Vec<u8>> {
///     Ok(image.view().select(2, 0)?.to_vec())
/// }
///
/// /// Constraints are combined in a tuple. The extents may be constants.
/// #[pyfunction]
/// fn reset(mut pose: PyTensorOf<f64, 2, (Shape![4, 4], Writable)>) {
///     pose.view_mut().fill(0.0);
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let red = wrap_pyfunction!(red, py)?;
/// # let image = |shape: &[i64]| {
/// #     let pixels = vec![7_u8; shape.iter().product::<i64>() as usize];
/// #     PyTensor::new(Tensor::from(pixels).reshape(shape).unwrap())
/// # };
/// # assert_eq!(red.call1((image(&[1, 2, 3]),))?.len()?, 2);
/// let error = red.call1((image(&[4, 5, 4]),)).unwrap_err();
/// let message = "expected uint8[?, ?, 3] on the host, found uint8[4, 5, 4] on cpu";
/// assert!(error.to_string().ends_with(message));
/// # Ok(()) }).unwrap();
/// ```
///
/// The ndim of the `PyTensorOf` is that of the shape, or [`ANY_NDIM`](crate::ANY_NDIM). Another
/// ndim does not compile:
///
/// ```compile_fail,E0080
/// # use dlbridge_pyo3::{PyTensorOf, Shape};
/// # let tensor = dlbridge::Tensor::from(vec![1.0_f32]);
/// PyTensorOf::<f32, 1, Shape![_, 3]>::new(tensor).unwrap();
/// ```
#[macro_export]
macro_rules! Shape {
    (@extent _) => { -1 };
    (@extent None) => { $crate::Shape!() };
    (@extent $extent:tt) => { $extent };
    ($a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt, $g:tt, $h:tt, $($more:tt),+ $(,)?) => {
        $crate::Shape!()
    };
    ($($extent:tt),+ $(,)?) => {
        $crate::shapes::Shape<$({ $crate::Shape!(@extent $extent) }),+>
    };
    ($($other:tt)*) => {
        ::core::compile_error!("expected 1 to 8 extents, with `_` for an axis of any: `Shape![_, _, 3]`")
    };
}

/// The type that [`Shape!`](crate::Shape!) names. An extent of -1 is any, and `ABSENT` ends the list.
#[doc(hidden)]
pub mod shapes {
    use crate::{Constraint, Metadata};

    const ABSENT: i64 = i64::MIN;

    #[derive(Debug)]
    pub struct Shape<
        const A: i64,
        const B: i64 = ABSENT,
        const C: i64 = ABSENT,
        const D: i64 = ABSENT,
        const E: i64 = ABSENT,
        const F: i64 = ABSENT,
        const G: i64 = ABSENT,
        const H: i64 = ABSENT,
    >;

    impl<
        const A: i64,
        const B: i64,
        const C: i64,
        const D: i64,
        const E: i64,
        const F: i64,
        const G: i64,
        const H: i64,
    > Constraint for Shape<A, B, C, D, E, F, G, H>
    {
        const SHAPE: Option<&'static [i64]> = Some(present(&[A, B, C, D, E, F, G, H]));

        fn is_met(found: Metadata<'_>) -> bool {
            let (found, wanted) = (found.shape(), Self::SHAPE.unwrap_or_default());
            let is_one = |(found, &wanted): (&i64, &i64)| wanted == -1 || *found == wanted;
            found.len() == wanted.len() && found.iter().zip(wanted).all(is_one)
        }

        /// The message has the extents behind the dtype.
        fn name(_: &mut String) {}
    }

    const fn present(extents: &[i64]) -> &[i64] {
        let mut ndim = extents.len();
        while ndim > 0 && extents[ndim - 1] == ABSENT {
            ndim -= 1;
        }
        extents.split_at(ndim).0
    }
}
