//! `bytes` 1, both ways: tensors of one axis of `u8`. Feature `bytes-1`.
//!
//! `Bytes` becomes a read-only [`Tensor`] and `BytesMut` a writable one, by `From`. A contiguous tensor
//! of `u8` that no other code writes becomes `Bytes`, by [`into_as`](Tensor::into_as). Nothing is copied.

use bytes::{Bytes, BytesMut};

use crate::{Error, Tensor};

/// Bytes become a read-only tensor of one axis, without a copy.
///
/// ```
/// use bytes::Bytes;
/// use dlbridge::Tensor;
///
/// let bytes = Bytes::from_static(b"some bytes").slice(5..);
/// let tensor = Tensor::from(bytes.clone());
/// assert!(tensor.is_read_only());
/// assert_eq!(tensor.data_ptr().cast_const().cast(), bytes.as_ptr());
///
/// let again = Bytes::try_from(tensor)?;
/// assert_eq!(again.as_ptr(), bytes.as_ptr());
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl From<Bytes> for Tensor {
    fn from(bytes: Bytes) -> Self {
        Self::builder(bytes).build_read_only::<u8>().unwrap_or_else(|error| error.impossible())
    }
}

/// Unique bytes become a writable tensor of one axis, without a copy.
impl From<BytesMut> for Tensor {
    fn from(bytes: BytesMut) -> Self {
        Self::builder(bytes).build::<u8>().unwrap_or_else(|error| error.impossible())
    }
}

impl TryFrom<Tensor> for Bytes {
    type Error = Error;

    /// Turns a contiguous tensor of `u8` into bytes that own it, without a copy. For the bytes
    /// of other elements, call `Bytes::from_owner(tensor.into_bytes()?)`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::as_slice`], which checks without consuming the tensor.
    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        Ok(Self::from_owner(tensor.into_slice::<u8>()?))
    }
}
