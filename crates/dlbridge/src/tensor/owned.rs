//! `Tensor`: metadata, reading, writing, and the way back to its owner.

use std::{fmt, io};

use super::TensorRef;
use super::accessors::{metadata, reading, writing};
use crate::raw::{Checked, Handle};
use crate::{Error, Flags};

/// An owning handle to the memory of a tensor: a shape, strides, an element type, a device and the
/// elements, described as DLPack does.
///
/// One type for memory that Rust owns and for memory of another language, in either ABI of DLPack.
/// Dropping it frees the memory, or calls the deleter of its producer, exactly once, on any thread.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
/// assert_eq!(tensor.shape(), [3]);
/// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Memory
///
/// A tensor is two words: a pointer to its descriptor, and its flags and [class](crate::Access). The
/// descriptor of memory that Rust owns is the start of a header, one allocation that also has the
/// owner, the shape and the strides. Exporting the tensor passes the address of that header to the
/// consumer; nothing is allocated or copied.
///
/// ```text
/// Tensor                header                                     elements
/// +--------------+      +--------------------------------------+
/// | descriptor --|----->| DLManagedTensorVersioned             |
/// | flags, class |      |   data ------------------------------|---->+-----+-----+-----+
/// +--------------+      |   shape, strides --+                 |     | 1.0 | 2.0 | 3.0 |
///                       |   dtype, device    |                 |     +-----+-----+-----+
///                       |   deleter          |                 |        ^
///                       +--------------------|-----------------+        |
///                       | count of handles   |                 |        |
///                       | owner: Vec<f32>  --|-----------------|--------+ frees them
///                       | [3], [1]  <--------+                 |
///                       +--------------------------------------+
/// ```
///
/// An imported tensor has no header: its descriptor is the producer's managed tensor, whose deleter
/// frees it. Handles that [share](Self::into_shared) the memory have one header, which counts them.
pub struct Tensor(pub(crate) Handle);

impl Tensor {
    metadata!();
    reading!();
    writing!();

    pub(crate) fn contiguous_copy(checked: Checked<'_>) -> Result<Self, Error> {
        checked.check_host()?;
        let (dtype, shape) = (checked.dtype(), checked.shape());
        let mut flags = Flags::IS_COPIED;
        if checked.flags().contains(Flags::SUBBYTE_PADDED) {
            flags |= Flags::SUBBYTE_PADDED;
        }
        Self::in_buffer(dtype, shape, flags, |_| checked.to_buffer())
    }

    /// Copies the elements to a slice of bytes, in row-major order, for every class and layout.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut bytes = [0; 4];
    /// Tensor::from(vec![1_u16, 2]).copy_to_bytes(&mut bytes)?;
    /// assert_eq!(bytes[..2], 1_u16.to_ne_bytes());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch) if the slice has another size than
    /// [`nbytes`](Self::nbytes), and those of [`to_contiguous`](Self::to_contiguous).
    pub fn copy_to_bytes(&self, target: &mut [u8]) -> Result<(), Error> {
        self.checked().copy_to_bytes(target)
    }

    /// Writes the bytes of the elements, in row-major order, for every class and layout: to a file or a
    /// socket. Memory that other code may write is copied in blocks that fit the processor's cache.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut bytes = Vec::new();
    /// Tensor::from(vec![1_u8, 2, 3]).into_shared().write_to(&mut bytes)?;
    /// assert_eq!(bytes, [1, 2, 3]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the writer, and those of [`to_contiguous`](Self::to_contiguous) as
    /// [`io::Error`].
    pub fn write_to(&self, mut writer: impl io::Write) -> io::Result<()> {
        const BLOCK: usize = 64 << 10;
        let checked = self.checked();
        if let Ok(bytes) = checked.bytes() {
            return writer.write_all(bytes);
        }
        if !checked.is_contiguous() {
            return writer.write_all(self.to_contiguous()?.as_bytes()?);
        }
        let mut block = vec![0; checked.nbytes().min(BLOCK)];
        checked.copy_by_blocks(&mut block, |bytes| writer.write_all(bytes))
    }

    /// Borrows the tensor as a [`TensorRef`].
    #[must_use]
    pub fn as_tensor_ref(&self) -> TensorRef<'_> {
        TensorRef::from_checked(self.checked())
    }

    /// Turns the tensor into an owned type of another crate, which keeps the memory alive, without a copy:
    /// `arrow_buffer::Buffer`, `bytes::Bytes`, `burn_std::TensorData`, `image::ImageBuffer` over a
    /// [`TensorSlice`](crate::TensorSlice), `candle_core::Tensor`, `cudarc::driver::CudaSlice`.
    ///
    /// ```
    /// # #[cfg(feature = "bytes-1")]
    /// # {
    /// use bytes::Bytes;
    /// use dlbridge::Tensor;
    ///
    /// let bytes = Tensor::from(vec![1_u8, 2, 3]).into_as::<Bytes>()?;
    /// assert_eq!(bytes.slice(1..)[..], [2, 3]);
    /// # }
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the conversion. Types that take the owner back out, as
    /// [`into_owner`](Self::into_owner) does, return the tensor itself.
    #[inline]
    pub fn into_as<A: TryFrom<Self>>(self) -> Result<A, A::Error> {
        A::try_from(self)
    }

    /// Takes the owner back out, if this tensor was made from an owner of type `O` and never left
    /// Rust.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1_u8, 2, 3]);
    /// let vec: Vec<u8> = tensor.into_owner().unwrap();
    /// assert_eq!(vec, [1, 2, 3]);
    /// ```
    ///
    /// # Errors
    ///
    /// The tensor itself, if it has another owner, or if it has elements of type `bool` and class
    /// [`Shared`](crate::Access::Shared): other code may have written bytes that are no `bool`.
    pub fn into_owner<O: 'static>(self) -> Result<O, Self> {
        self.0.into_owner().map_err(Self)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("Tensor", &self.checked(), f)
    }
}

pub(crate) fn debug(name: &str, checked: &Checked<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("dtype", &format_args!("{}", checked.dtype()))
        .field("shape", &checked.shape())
        .field("strides", &checked.strides())
        .field("device", &format_args!("{}", checked.device()))
        .field("flags", &format_args!("{}", checked.flags()))
        .field("access", &format_args!("{}", checked.access()))
        .field("data", &checked.data())
        .finish()
}
