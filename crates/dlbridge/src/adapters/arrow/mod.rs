// The conversions of every version of `arrow`: each version's module loads this file, with its
// crates as `super::arrow`.

#[path = "lists.rs"]
pub(super) mod lists;
#[path = "memory.rs"]
mod memory;

use self::memory::buffer;
use super::arrow::array::{Array, ArrowPrimitiveType, PrimitiveArray};
use super::arrow::buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use crate::adapters::memory::{borrow, export_frozen};
use crate::{Element, Error, Plain, Tensor, TensorRef};

/// Why exporting a buffer cannot fail.
const ONE_AXIS: &str = "one axis is never too many";

/// A buffer becomes a read-only tensor of bytes, without a copy. [`Tensor::builder`] gives its
/// bytes another type and shape.
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
