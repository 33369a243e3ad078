//! `burn-flex` 0.22, both ways: the tensors of Burn's backend for the CPU. Feature `burn-flex-0_22`.
//!
//! A `FlexTensor` becomes a [`Tensor`] with its strides, by `TryFrom`. A contiguous tensor that no
//! other code writes becomes a `FlexTensor`, by [`into_as`](Tensor::into_as). Nothing is copied.

use std::sync::Arc;

use burn_flex::FlexTensor;
use burn_std::TensorData;

use super::burn_0_22::dtype;
use super::burn_0_22_memory::{check_resident, export_shared_bytes};
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
