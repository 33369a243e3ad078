//! `burn` 0.22, both ways: bytes and tensor data. Feature `burn-0_22`.
//!
//! | from | to |
//! | --- | --- |
//! | `Bytes`, `TensorData` | [`Tensor`], by `TryFrom` |
//! | a contiguous tensor that no other code writes | `Bytes`, `TensorData`, by [`into_as`](Tensor::into_as) |
//!
//! Nothing is copied. Bytes of truth values are checked to be 0 or 1 on their way to Burn.
//!
//! ```
//! use burn_std::TensorData;
//! use dlbridge::Tensor;
//!
//! let tensor = Tensor::try_from(TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2]))?;
//! let data = tensor.into_as::<TensorData>()?;
//! assert_eq!(data.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
//! # Ok::<(), dlbridge::Error>(())
//! ```

use burn_std::{BoolStore, Bytes, DType as BurnType, TensorData};

use super::burn_0_22_memory::{bytes, export_bytes};
use crate::layout::extents;
use crate::{DType, Error, Tensor};

/// What Burn has a type for.
const TYPES: &str = "integers of 8 to 64 bits, floats of 16 to 64 bits, or bool";

/// Burn's bytes become a tensor of one axis, without a copy: writable if they are their memory's
/// only holder, else read-only.
///
/// # Errors
///
/// [`NotConvertible`](Error::NotConvertible) for bytes of a file or a device.
impl TryFrom<Bytes> for Tensor {
    type Error = Error;

    fn try_from(bytes: Bytes) -> Result<Self, Error> {
        let len = bytes.len() as i64;
        place(bytes, DType::U8, &[len])
    }
}

/// Burn's tensor data become a tensor without a copy: writable if they are their memory's only
/// holder, else read-only.
///
/// ```
/// use burn_std::TensorData;
/// use dlbridge::Tensor;
///
/// let data = TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0], [2, 2]);
/// let start = data.bytes().as_ptr();
/// let tensor = Tensor::try_from(data)?;
/// assert_eq!(tensor.shape(), [2, 2]);
/// assert_eq!(tensor.as_slice::<f32>()?.as_ptr().cast(), start);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Errors
///
/// [`NotConvertible`](Error::NotConvertible) for quantised values, truth values of 32 bits, and
/// data of a file or a device.
impl TryFrom<TensorData> for Tensor {
    type Error = Error;

    fn try_from(data: TensorData) -> Result<Self, Error> {
        let dtype = dtype(data.dtype())?;
        let shape = extents(data.shape().as_slice())?;
        let (bytes, _, _) = data.into_parts();
        place(bytes, dtype, &shape)
    }
}

/// A tensor becomes Burn's bytes, which keep it, without a copy. Memory of class
/// [`Exclusive`](crate::Access::Exclusive) is written where it is; Burn copies frozen memory before
/// it writes.
///
/// # Errors
///
/// [`SharedMemory`](Error::SharedMemory), [`NotContiguous`](Error::NotContiguous) or
/// [`NotHostAccessible`](Error::NotHostAccessible).
impl TryFrom<Tensor> for Bytes {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        bytes(tensor)
    }
}

/// A tensor becomes Burn's tensor data, which keep it, without a copy.
///
/// ```
/// use burn_std::TensorData;
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::builder(vec![1.0_f32, 2.0, 3.0, 4.0]).shape([2, 2]).build()?;
/// let start = tensor.data_ptr();
/// let data = TensorData::try_from(tensor)?;
/// assert_eq!(data.as_slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(data.bytes().as_ptr().cast(), start.cast_const());
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Errors
///
/// [`NotConvertible`](Error::NotConvertible) for an element type that Burn does not have, or a byte
/// that is no truth value; [`Misaligned`](Error::Misaligned), and those of the conversion to
/// [`Bytes`].
impl TryFrom<Tensor> for TensorData {
    type Error = Error;

    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        let (dtype, align) = burn_type(tensor.dtype())?;
        let shape: Vec<usize> = tensor.shape().iter().map(|&extent| extent as usize).collect();
        let address = tensor.data_ptr().addr();
        if !tensor.is_empty() && address % align != 0 {
            return Err(Error::Misaligned { address, align });
        }
        let bytes = bytes(tensor)?;
        if let (BurnType::Bool(_), Some(byte)) = (dtype, bytes.iter().find(|&&byte| byte > 1)) {
            let (found, expected) = (format!("the byte {byte}"), "truth values, 0 or 1");
            return Err(Error::NotConvertible { what: "values", found, expected });
        }
        Self::try_from_bytes(bytes, shape, dtype).map_err(|error| Error::NotConvertible {
            what: "shape",
            found: error.to_string(),
            expected: "one that Burn can have",
        })
    }
}

fn place(bytes: Bytes, dtype: DType, shape: &[i64]) -> Result<Tensor, Error> {
    Tensor::builder(bytes).dtype(dtype).shape(shape).place(export_bytes)
}

macro_rules! types {
    ($($dtype:ident = $burn:ident, $ty:ty;)*) => {
        fn dtype(found: BurnType) -> Result<DType, Error> {
            match found {
                $(BurnType::$burn => Ok(DType::$dtype),)*
                // Numbers of 32 bits that Burn may compute with as less precise ones.
                BurnType::Flex32 => Ok(DType::F32),
                BurnType::Bool(BoolStore::Native | BoolStore::U8) => Ok(DType::BOOL),
                _ => Err(Error::other_dtype(format_args!("{found:?}"), TYPES)),
            }
        }

        /// Burn's name for a type, and the alignment that Rust wants for it.
        fn burn_type(found: DType) -> Result<(BurnType, usize), Error> {
            match found {
                $(DType::$dtype => Ok((BurnType::$burn, align_of::<$ty>())),)*
                DType::BOOL => Ok((BurnType::Bool(BoolStore::Native), 1)),
                _ => Err(Error::other_dtype(found, TYPES)),
            }
        }
    };
}

types! {
    I8 = I8, i8;
    I16 = I16, i16;
    I32 = I32, i32;
    I64 = I64, i64;
    U8 = U8, u8;
    U16 = U16, u16;
    U32 = U32, u32;
    U64 = U64, u64;
    F16 = F16, u16;
    BF16 = BF16, u16;
    F32 = F32, f32;
    F64 = F64, f64;
}

#[cfg(feature = "burn-flex-0_22")]
mod flex {
    use std::sync::Arc;

    use burn_flex::FlexTensor;
    use burn_std::TensorData;

    use super::dtype;
    use crate::adapters::burn_0_22_memory::{check_resident, export_shared_bytes};
    use crate::layout::extents;
    use crate::{Error, Tensor};

    /// A tensor of Burn's Flex backend becomes a read-only tensor without a copy, with any strides: other
    /// Burn tensors may share its elements. (For a writable tensor of a unique one, convert the result of
    /// its `into_data`.)
    ///
    /// # Errors
    ///
    /// [`NotConvertible`](Error::NotConvertible) as for [`TensorData`], and
    /// [`OutOfBounds`](Error::OutOfBounds) if its layout reaches past its bytes.
    impl TryFrom<FlexTensor> for Tensor {
        type Error = Error;

        fn try_from(tensor: FlexTensor) -> Result<Self, Error> {
            let (dtype, layout) = (dtype(tensor.dtype())?, tensor.layout());
            let shape = extents(layout.shape().as_slice())?;
            let strides: Vec<i64> = layout.strides().iter().map(|&stride| stride as i64).collect();
            let bytes = tensor.data_arc();
            check_resident(&bytes)?;
            Self::builder(bytes)
                .dtype(dtype)
                .shape(&shape)
                .strides(&strides)
                .offset(layout.start_offset())
                .place(|bytes, placement| export_shared_bytes(bytes, placement, Arc::as_ref))
        }
    }

    /// A tensor becomes one of Burn's Flex backend, which keeps it, without a copy. Burn computes on its
    /// memory, and in place where it is the unique holder of memory of class
    /// [`Exclusive`](crate::Access::Exclusive).
    ///
    /// ```
    /// use burn_flex::FlexTensor;
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1.0_f32, 2.0]);
    /// let start = tensor.data_ptr();
    /// let burn = FlexTensor::try_from(tensor)?;
    /// assert_eq!(burn.bytes().as_ptr().cast(), start.cast_const());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the conversion to [`TensorData`].
    impl TryFrom<Tensor> for FlexTensor {
        type Error = Error;

        fn try_from(tensor: Tensor) -> Result<Self, Error> {
            Ok(Self::from_data(TensorData::try_from(tensor)?))
        }
    }
}
