//! `Shape!`, the constraint of a `PyTensorOf` that fixes extents.

/// A constraint of a [`PyTensorOf`](crate::PyTensorOf): fixed extents, up to rank 8. `_` is an axis
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
/// The rank of the `PyTensorOf` is that of the shape, or [`ANY_RANK`](crate::ANY_RANK). Another
/// rank does not compile:
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
        let mut rank = extents.len();
        while rank > 0 && extents[rank - 1] == ABSENT {
            rank -= 1;
        }
        extents.split_at(rank).0
    }
}
