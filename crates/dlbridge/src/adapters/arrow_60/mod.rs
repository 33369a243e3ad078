//! `arrow` 60, both ways. Feature `arrow-60`.
//!
//! | from | to |
//! | --- | --- |
//! | `Buffer`, `ScalarBuffer` | [`Tensor`], read-only, by `From` |
//! | `PrimitiveArray`, `FixedSizeListArray`, `ArrayRef` | [`Tensor`], read-only, by `TryFrom` |
//! | `&PrimitiveArray` | [`TensorRef`], by `TryFrom` |
//! | a column of the extension type `arrow.fixed_shape_tensor` | [`Tensor`], by [`from_fixed_shape_tensors`] |
//! | a tensor that no other code writes | `Buffer`, `ScalarBuffer`, `PrimitiveArray`, `ArrayRef`, by [`into_as`](Tensor::into_as) |
//! | the same | a column of tensors, by [`into_fixed_shape_tensors`] |
//!
//! Nothing is copied. Arrays with nulls or with bit-packed values are rejected.
//!
//! ```
//! use arrow_array::{Array, Float64Array};
//! use dlbridge::Tensor;
//!
//! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
//! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
//! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod lists;
mod raw;

pub use lists::{from_fixed_shape_tensors, into_fixed_shape_tensors};

use arrow_array::{Array, ArrowPrimitiveType, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};

use self::raw::buffer;
use super::raw::{borrow, export_frozen};
use crate::{Element, Error, Plain, Tensor, TensorRef};

/// Why exporting a buffer cannot fail.
const ONE_AXIS: &str = "one axis is never too many";

/// A buffer becomes a read-only tensor of bytes, without a copy. [`Tensor::builder`] gives its
/// bytes another type and shape.
///
/// ```
/// use arrow_buffer::Buffer;
/// use dlbridge::{DType, Tensor};
///
/// let buffer = Buffer::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0]);
/// let start = buffer.as_ptr();
/// let matrix = Tensor::builder(buffer).dtype(DType::F32).shape(&[2, 2]).build_read_only::<u8>()?;
/// assert_eq!(matrix.as_slice::<f32>()?.as_ptr().cast(), start);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl From<Buffer> for Tensor {
    fn from(buffer: Buffer) -> Self {
        Self(export_frozen(buffer).expect(ONE_AXIS))
    }
}

/// A buffer of numbers becomes a read-only tensor of one axis, without a copy.
impl<T: ArrowNativeType + Element> From<ScalarBuffer<T>> for Tensor {
    fn from(buffer: ScalarBuffer<T>) -> Self {
        Self(export_frozen(buffer).expect(ONE_AXIS))
    }
}

/// A primitive array without nulls becomes a read-only tensor of one axis, without a copy: the
/// numbers that it stores, whatever it says they mean (dates, decimals).
///
/// ```
/// use arrow_array::Float64Array;
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
/// assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
///
/// let error = Tensor::try_from(Float64Array::from(vec![Some(1.0), None])).unwrap_err();
/// assert_eq!(error.to_string(), "values: expected an array without nulls, found 1 null");
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<P: ArrowPrimitiveType<Native: Element>> TryFrom<PrimitiveArray<P>> for Tensor {
    type Error = Error;

    fn try_from(array: PrimitiveArray<P>) -> Result<Self, Error> {
        no_nulls(&array)?;
        let (_, values, _) = array.into_parts();
        Ok(values.into())
    }
}

impl<'a, P: ArrowPrimitiveType<Native: Element>> TryFrom<&'a PrimitiveArray<P>> for TensorRef<'a> {
    type Error = Error;

    fn try_from(array: &'a PrimitiveArray<P>) -> Result<Self, Error> {
        no_nulls(array)?;
        Ok(borrow(&array.values()[..]))
    }
}

/// A tensor becomes a buffer over its elements' bytes, which keeps the tensor, without a copy.
///
/// ```
/// use arrow_buffer::Buffer;
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1_u16, 2]);
/// let start = tensor.data_ptr();
/// let buffer = Buffer::try_from(tensor)?;
/// assert_eq!((buffer.len(), buffer.as_ptr().cast()), (4, start.cast_const()));
///
/// let others = Tensor::from(Tensor::from(vec![1_u16, 2]).into_shared());
/// assert!(Buffer::try_from(others).is_err(), "Arrow relies on memory that nobody writes");
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl TryFrom<Tensor> for Buffer {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        buffer(tensor)
    }
}

/// A tensor of one axis becomes a buffer of numbers, which keeps the tensor, without a copy.
impl<T: ArrowNativeType + Plain> TryFrom<Tensor> for ScalarBuffer<T> {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        one_axis(&tensor)?;
        numbers(tensor)
    }
}

/// A tensor of one axis becomes a primitive array without nulls, which keeps the tensor, without
/// a copy.
///
/// ```
/// use arrow_array::{Array, Int64Array};
/// use dlbridge::Tensor;
///
/// let array = Int64Array::try_from(Tensor::from(vec![1_i64, 2, 3]))?;
/// assert_eq!((array.values().as_ref(), array.null_count()), (&[1, 2, 3][..], 0));
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<P: ArrowPrimitiveType<Native: Plain>> TryFrom<Tensor> for PrimitiveArray<P> {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        Ok(Self::new(tensor.try_into()?, None))
    }
}

fn no_nulls(array: &dyn Array) -> Result<(), Error> {
    let found = match array.null_count() {
        0 => return Ok(()),
        1 => "1 null".to_owned(),
        count => format!("{count} nulls"),
    };
    Err(Error::NotConvertible { what: "values", found, expected: "an array without nulls" })
}

fn one_axis(tensor: &Tensor) -> Result<(), Error> {
    match tensor.rank() {
        1 => Ok(()),
        found => Err(Error::rank(1, found)),
    }
}

/// All elements as numbers of one type, whatever the shape.
fn numbers<T: ArrowNativeType + Plain>(tensor: Tensor) -> Result<ScalarBuffer<T>, Error> {
    // Everything that Arrow would panic at, and everything that a slice must not be.
    let len = tensor.as_slice::<T>()?.len();
    Ok(ScalarBuffer::new(buffer(tensor)?, 0, len))
}
