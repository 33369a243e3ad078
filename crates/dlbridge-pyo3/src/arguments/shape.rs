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
    ($a:tt $(,)?) => {
        $crate::shapes::Shape1<{ $crate::Shape!(@extent $a) }>
    };
    ($a:tt, $b:tt $(,)?) => {
        $crate::shapes::Shape2<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }>
    };
    ($a:tt, $b:tt, $c:tt $(,)?) => {
        $crate::shapes::Shape3<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }>
    };
    ($a:tt, $b:tt, $c:tt, $d:tt $(,)?) => {
        $crate::shapes::Shape4<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }, { $crate::Shape!(@extent $d) }>
    };
    ($a:tt, $b:tt, $c:tt, $d:tt, $e:tt $(,)?) => {
        $crate::shapes::Shape5<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }, { $crate::Shape!(@extent $d) }, { $crate::Shape!(@extent $e) }>
    };
    ($a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt $(,)?) => {
        $crate::shapes::Shape6<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }, { $crate::Shape!(@extent $d) }, { $crate::Shape!(@extent $e) }, { $crate::Shape!(@extent $f) }>
    };
    ($a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt, $g:tt $(,)?) => {
        $crate::shapes::Shape7<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }, { $crate::Shape!(@extent $d) }, { $crate::Shape!(@extent $e) }, { $crate::Shape!(@extent $f) }, { $crate::Shape!(@extent $g) }>
    };
    ($a:tt, $b:tt, $c:tt, $d:tt, $e:tt, $f:tt, $g:tt, $h:tt $(,)?) => {
        $crate::shapes::Shape8<{ $crate::Shape!(@extent $a) }, { $crate::Shape!(@extent $b) }, { $crate::Shape!(@extent $c) }, { $crate::Shape!(@extent $d) }, { $crate::Shape!(@extent $e) }, { $crate::Shape!(@extent $f) }, { $crate::Shape!(@extent $g) }, { $crate::Shape!(@extent $h) }>
    };
    ($($other:tt)*) => {
        ::core::compile_error!("expected 1 to 8 extents, with `_` for an axis of any: `Shape![_, _, 3]`")
    };
}

/// The types that [`Shape!`](crate::Shape!) names, one for each rank: one type with a list of
/// axes would be too complex for clippy. An extent of -1 is any.
#[doc(hidden)]
pub mod shapes {
    use crate::{Constraint, Metadata};

    macro_rules! shapes {
        ($($name:ident($($extent:ident),+))*) => {$(
            #[derive(Debug)]
            pub struct $name<$(const $extent: i64),+>;

            impl<$(const $extent: i64),+> Constraint for $name<$($extent),+> {
                const SHAPE: Option<&'static [i64]> = Some(&[$($extent),+]);

                fn is_met(found: Metadata<'_>) -> bool {
                    fits(found.shape(), &[$($extent),+])
                }

                /// The message has the extents behind the dtype.
                fn name(_: &mut String) {}
            }
        )*};
    }

    shapes! {
        Shape1(A)
        Shape2(A, B)
        Shape3(A, B, C)
        Shape4(A, B, C, D)
        Shape5(A, B, C, D, E)
        Shape6(A, B, C, D, E, F)
        Shape7(A, B, C, D, E, F, G)
        Shape8(A, B, C, D, E, F, G, H)
    }

    fn fits(found: &[i64], wanted: &[i64]) -> bool {
        let is_one = |(found, &wanted): (&i64, &i64)| wanted == -1 || *found == wanted;
        found.len() == wanted.len() && found.iter().zip(wanted).all(is_one)
    }
}
