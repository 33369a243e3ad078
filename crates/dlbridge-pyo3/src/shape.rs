//! `Shape`, the constraint of a `PyTensorOf` that fixes extents.

use std::marker::PhantomData;

use dlbridge::Tensor;

use crate::Constraint;

/// Fixed extents, and axes of any extent: a constraint of a [`PyTensorOf`](crate::PyTensorOf),
/// written with the macro of the same name. `_` is an axis of any extent.
///
/// ```
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
/// fn reset(py: Python<'_>, mut pose: PyTensorOf<f64, 2, (Shape![4, 4], Writable)>) {
///     pose.view_mut(py).fill(0.0);
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let red = wrap_pyfunction!(red, py)?;
/// # let image = |shape: &[i64]| {
/// #     let pixels = vec![7_u8; shape.iter().product::<i64>() as usize];
/// #     PyTensor::new(dlbridge::Tensor::from(pixels).reshape(shape).unwrap())
/// # };
/// # assert_eq!(red.call1((image(&[1, 2, 3]),))?.len()?, 2);
/// let error = red.call1((image(&[4, 5, 4]),)).unwrap_err();
/// let message = "expected uint8[?, ?, 3] on the host, found uint8[4, 5, 4] on cpu";
/// assert!(error.to_string().ends_with(message));
/// # Ok(()) }).unwrap();
/// ```
///
/// The rank of the `PyTensorOf` is that of the shape, or [`ANY_RANK`](crate::ANY_RANK). Another
/// rank does not compile:
///
/// ```compile_fail,E0080
/// # use dlbridge_pyo3::{PyTensorOf, Shape};
/// # let tensor = dlbridge::Tensor::from(vec![1.0_f32]);
/// PyTensorOf::<f32, 1, Shape![_, 3]>::new(tensor).unwrap();
/// ```
#[derive(Debug)]
pub struct Shape<A>(PhantomData<fn() -> A>);

impl<A: Axes> Constraint for Shape<A> {
    const SHAPE: Option<&'static [Option<i64>]> = Some(A::EXTENTS);

    fn is_met(tensor: &Tensor) -> bool {
        let shape = tensor.shape();
        let fits = |(found, fixed): (&i64, &Option<i64>)| fixed.is_none_or(|fixed| fixed == *found);
        shape.len() == A::EXTENTS.len() && shape.iter().zip(A::EXTENTS).all(fits)
    }

    /// The message has the extents behind the dtype.
    fn name(_: &mut String) {}
}

/// The type [`Shape`] of some extents, of which `_` may be any: `Shape![_, _, 3]`.
#[macro_export]
macro_rules! Shape {
    ($($extent:tt),+ $(,)?) => {
        $crate::Shape<($($crate::Shape!(@axis $extent),)+)>
    };
    (@axis _) => { $crate::axes::Any };
    (@axis $extent:tt) => { $crate::axes::Fixed<{ $extent }> };
}

/// The axes of a [`Shape`], as the macro writes them.
pub trait Axes {
    /// The fixed extents; `None` for an axis of any extent.
    const EXTENTS: &'static [Option<i64>];
}

/// The types that the macro [`Shape!`](crate::Shape!) names. Not for other use.
#[doc(hidden)]
pub mod axes {
    pub trait Axis {
        const EXTENT: Option<i64>;
    }

    #[derive(Debug)]
    pub struct Any;

    #[derive(Debug)]
    pub struct Fixed<const EXTENT: i64>;

    impl Axis for Any {
        const EXTENT: Option<i64> = None;
    }

    impl<const EXTENT: i64> Axis for Fixed<EXTENT> {
        const EXTENT: Option<i64> = Some(EXTENT);
    }
}

macro_rules! tuples {
    ($(($($axis:ident),+))*) => {$(
        impl<$($axis: axes::Axis),+> Axes for ($($axis,)+) {
            const EXTENTS: &'static [Option<i64>] = &[$($axis::EXTENT),+];
        }
    )*};
}

tuples! {
    (A) (A, B) (A, B, C) (A, B, C, D) (A, B, C, D, E) (A, B, C, D, E, F) (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}
