//! `bytes` 1, both ways: one axis of `u8`, for as long as there are bytes.
//! Elements of other types do not belong here: `Tensor::into_bytes` gives their bytes an owner.
//! Invariant: `Bytes` becomes read-only memory, and is made of memory that nobody writes.

use bytes::{Bytes, BytesMut};

use crate::{Error, Tensor};

/// Why exporting bytes cannot fail.
const ONE_AXIS: &str = "one axis is never too many";

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
        Self::builder(bytes).build_read_only::<u8>().expect(ONE_AXIS)
    }
}

/// Bytes that are nobody else's become a tensor of one axis, without a copy.
impl From<BytesMut> for Tensor {
    fn from(bytes: BytesMut) -> Self {
        Self::builder(bytes).build::<u8>().expect(ONE_AXIS)
    }
}

impl TryFrom<Tensor> for Bytes {
    type Error = Error;

    /// Turns a contiguous tensor of `u8` into bytes that own it, without a copy. For the bytes
    /// of other elements, say `Bytes::from_owner(tensor.into_bytes()?)`.
    ///
    /// # Errors
    ///
    /// As [`Tensor::as_slice`], which tells in advance.
    fn try_from(tensor: Tensor) -> Result<Self, Error> {
        Ok(Self::from_owner(tensor.into_slice::<u8>()?))
    }
}
