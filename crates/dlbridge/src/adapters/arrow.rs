// The conversions of every version of `arrow`: each version's module loads this file, with its
// crates as `super::arrow`.

#[path = "arrow_memory.rs"]
mod memory;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use self::memory::buffer;
use super::arrow::array::cast::AsArray;
use super::arrow::array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use super::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, FixedSizeListArray, PrimitiveArray,
};
use super::arrow::buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use super::arrow::schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use super::arrow::schema::{DataType, Field};
use crate::adapters::memory::{borrow, export_frozen};
use crate::layout::{contiguous_strides, extent};
use crate::memory::owner::export_slice;
use crate::{DType, DescriptorError, Element, Error, Plain, Tensor, TensorRef};

/// A buffer becomes a read-only tensor of bytes, without a copy. [`Tensor::builder`] gives its
/// bytes another type and shape.
impl From<Buffer> for Tensor {
    fn from(buffer: Buffer) -> Self {
        Self(export_frozen(buffer).unwrap_or_else(|error| error.impossible()))
    }
}

/// A buffer of numbers becomes a read-only tensor of one axis, without a copy.
impl<T: ArrowNativeType + Element> From<ScalarBuffer<T>> for Tensor {
    fn from(buffer: ScalarBuffer<T>) -> Self {
        Self(export_frozen(buffer).unwrap_or_else(|error| error.impossible()))
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
    match tensor.ndim() {
        1 => Ok(()),
        found => Err(Error::ndim(1, found)),
    }
}

/// All elements as numbers of one type, whatever the shape.
fn numbers<T: ArrowNativeType + Plain>(tensor: Tensor) -> Result<ScalarBuffer<T>, Error> {
    // Everything that Arrow would panic at, and everything that a slice must not be.
    let len = tensor.as_slice::<T>()?.len();
    Ok(ScalarBuffer::new(buffer(tensor)?, 0, len))
}

/// The canonical extension type whose values are tensors.
const TENSOR: &str = "arrow.fixed_shape_tensor";

/// Which numbers are tensor elements as they are.
const NUMBERS: &str = "integers or floats of 8 to 64 bits";

/// A list of fixed size without nulls becomes a read-only tensor without a copy: an axis for the
/// list, one for its items, and so on inwards.
impl TryFrom<FixedSizeListArray> for Tensor {
    type Error = Error;

    fn try_from(array: FixedSizeListArray) -> Result<Self, Error> {
        Values::of(&array)?.contiguous()
    }
}

/// An array that holds numbers, or lists of fixed size of them, becomes a read-only tensor without
/// a copy.
impl TryFrom<ArrayRef> for Tensor {
    type Error = Error;

    fn try_from(array: ArrayRef) -> Result<Self, Error> {
        Values::of(&array)?.contiguous()
    }
}

/// A column of tensors of the canonical extension type `arrow.fixed_shape_tensor`, as one
/// tensor with an axis more, without a copy. The field's permutation becomes strides.
///
/// # Errors
///
/// [`NotConvertible`](Error::NotConvertible) if the field is of another type than this
/// extension, the array has nulls, or its values are no numbers.
pub fn from_fixed_shape_tensors(field: &Field, array: FixedSizeListArray) -> Result<Tensor, Error> {
    let Extents { physical, order } = Extents::of(field)?;
    let values = Values::of(&array)?;
    if values.shape.len() != 2 || product(&physical) != Ok(values.shape[1]) {
        let list = array.data_type();
        return Err(not_a_tensor(format!("extents {physical:?} for values of type {list}")));
    }
    let mut steps = vec![0; physical.len()];
    contiguous_strides(&physical, &mut steps);
    let (mut shape, mut strides) = (vec![values.shape[0]], vec![values.shape[1]]);
    for from in order {
        shape.push(physical[from]);
        strides.push(steps[from]);
    }
    values.export(&shape, &strides)
}

/// A tensor as a column of tensors of the canonical extension type
/// `arrow.fixed_shape_tensor`, without a copy: the first axis counts them.
///
/// # Errors
///
/// [`ShapeMismatch`](Error::ShapeMismatch) for 0 and 1 axes, and those of the conversion to
/// [`ArrayRef`].
pub fn into_fixed_shape_tensors(
    tensor: Tensor,
    name: &str,
) -> Result<(Field, FixedSizeListArray), Error> {
    let shape = tensor.shape().to_vec();
    let found = shape.len();
    let [count, inner @ ..] = &shape[..] else {
        return Err(Error::ndim(2, found));
    };
    if inner.is_empty() {
        return Err(Error::ndim(2, found));
    }
    let array = list(*count, product(inner)?, flat(tensor)?)?;
    let field = Field::new(name, array.data_type().clone(), false);
    Ok((field.with_metadata(metadata(inner)), array))
}

/// A tensor becomes a primitive array, or lists of fixed size for each axis but the first, without
/// a copy.
impl TryFrom<Tensor> for ArrayRef {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        let shape = tensor.shape().to_vec();
        if shape.is_empty() {
            return Err(Error::ndim(1, 0));
        }
        let mut array = flat(tensor)?;
        for axis in (1..shape.len()).rev() {
            array = Arc::new(list(product(&shape[..axis])?, shape[axis], array)?);
        }
        Ok(array)
    }
}

/// The numbers at the bottom of an array, and the shape that the lists around them make.
struct Values {
    buffer: Buffer,
    dtype: DType,
    shape: Vec<i64>,
}

impl Values {
    fn of(array: &dyn Array) -> Result<Self, Error> {
        let mut shape = vec![extent(array.len())?];
        let mut inner = array;
        while let DataType::FixedSizeList(_, size) = inner.data_type() {
            no_nulls(inner)?;
            shape.push(i64::from(*size));
            inner = inner.as_fixed_size_list().values();
        }
        no_nulls(inner)?;
        let dtype = dtype(inner.data_type())?;
        let data = inner.to_data();
        let size = dtype.itemsize().expect("no number is narrower than a byte");
        let buffer = data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size);
        Ok(Self { buffer, dtype, shape })
    }

    fn contiguous(self) -> Result<Tensor, Error> {
        let shape = self.shape.clone();
        let mut strides = vec![0; shape.len()];
        contiguous_strides(&shape, &mut strides);
        self.export(&shape, &strides)
    }

    fn export(self, shape: &[i64], strides: &[i64]) -> Result<Tensor, Error> {
        let builder = Tensor::builder(self.buffer).dtype(self.dtype);
        builder.shape(shape).strides(strides).place(|buffer, placement| {
            // Before 60, a buffer is no `AsRef`.
            export_slice(buffer, placement, Buffer::as_slice)
        })
    }
}

/// What the metadata of `arrow.fixed_shape_tensor` say of each tensor. arrow-schema's own reader
/// refuses what its writer writes (a null for each key that is not used) and panics at large
/// extents, so they are read here.
struct Extents {
    /// As the values lie in memory, row-major.
    physical: Vec<i64>,
    /// Which of them each axis of the tensor is.
    order: Vec<usize>,
}

impl Extents {
    fn of(field: &Field) -> Result<Self, Error> {
        match field.extension_type_name() {
            Some(TENSOR) => {}
            name => return Err(not_a_tensor(format!("the extension {}", name.unwrap_or("none")))),
        }
        let text = field.extension_type_metadata().unwrap_or_default();
        Self::parse(text).ok_or_else(|| not_a_tensor(format!("the metadata {text:?}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let metadata: Value = serde_json::from_str(text).ok()?;
        let numbers = |key: &str| -> Option<Vec<i64>> {
            metadata.get(key)?.as_array()?.iter().map(Value::as_i64).collect()
        };
        let physical = numbers("shape")?;
        let axes: Vec<usize> = (0..physical.len()).collect();
        let order = match metadata.get("permutation") {
            None | Some(Value::Null) => axes.clone(),
            Some(_) => numbers("permutation")?.into_iter().map(|axis| axis as usize).collect(),
        };
        let mut sorted = order.clone();
        sorted.sort_unstable();
        let valid = sorted == axes && physical.iter().all(|&extent| extent >= 0);
        valid.then_some(Self { physical, order })
    }
}

/// The metadata of a field that says [`TENSOR`].
fn metadata(extents: &[i64]) -> HashMap<String, String> {
    let shape = format!("{{\"shape\":{extents:?}}}");
    let words = [(EXTENSION_TYPE_NAME_KEY, TENSOR), (EXTENSION_TYPE_METADATA_KEY, &shape)];
    words.map(|(key, word)| (key.to_owned(), word.to_owned())).into()
}

fn not_a_tensor(found: String) -> Error {
    let expected = "the extension arrow.fixed_shape_tensor, with a shape for the values";
    Error::NotConvertible { what: "field", found, expected }
}

macro_rules! dtypes {
    ($($dtype:ident = $arrow:ident, $ty:ident;)*) => {
        fn dtype(found: &DataType) -> Result<DType, Error> {
            match found {
                $(DataType::$arrow => Ok(DType::$dtype),)*
                DataType::Boolean => Err(Error::other_dtype("Boolean, which Arrow packs into bits", NUMBERS)),
                _ => Err(Error::other_dtype(found, NUMBERS)),
            }
        }

        /// All elements in one primitive array, whatever the shape.
        fn flat(tensor: Tensor) -> Result<ArrayRef, Error> {
            match tensor.dtype() {
                $(DType::$dtype => primitive::<$ty>(tensor),)*
                dtype => Err(Error::other_dtype(dtype, NUMBERS)),
            }
        }
    };
}

dtypes! {
    I8 = Int8, Int8Type;
    I16 = Int16, Int16Type;
    I32 = Int32, Int32Type;
    I64 = Int64, Int64Type;
    U8 = UInt8, UInt8Type;
    U16 = UInt16, UInt16Type;
    U32 = UInt32, UInt32Type;
    U64 = UInt64, UInt64Type;
    F16 = Float16, Float16Type;
    F32 = Float32, Float32Type;
    F64 = Float64, Float64Type;
}

/// The tensor is of this type's dtype. Arrow's `f16` need not be an element type here.
fn primitive<P: ArrowPrimitiveType>(tensor: Tensor) -> Result<ArrayRef, Error> {
    let (len, address, align) = (tensor.len(), tensor.data_ptr().addr(), align_of::<P::Native>());
    if len > 0 && address % align != 0 {
        return Err(Error::Misaligned { address, align });
    }
    let values = ScalarBuffer::new(buffer(tensor)?, 0, len);
    Ok(Arc::new(PrimitiveArray::<P>::new(values, None)))
}

/// How many elements such extents have. Those of a tensor without elements may be of any size.
fn product(extents: &[i64]) -> Result<i64, Error> {
    let product = extents.iter().try_fold(1_i64, |product, &extent| product.checked_mul(extent));
    product.ok_or(Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" }))
}

fn list(count: i64, size: i64, values: ArrayRef) -> Result<FixedSizeListArray, Error> {
    let refused = |found: String| Error::NotConvertible {
        what: "shape",
        found,
        expected: "extents that a list of fixed size can have",
    };
    let fixed = i32::try_from(size).map_err(|_| refused(format!("lists of {size} items")))?;
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), false));
    FixedSizeListArray::try_new_with_length(item, fixed, values, None, count as usize)
        .map_err(|error| refused(error.to_string()))
}
