//! `Tensor`, which owns, and `TensorRef` and `TensorMut`, which describe a borrowed array for functions that take a plain
//! `DLTensor`.

use std::{fmt, io};

use super::accessors::{metadata, reading, writing};
use crate::memory::descriptor::Borrowed;
use crate::memory::{Checked, Handle};
use crate::{Error, Flags, layout};

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

fn debug(name: &str, checked: &Checked<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

/// A borrowed tensor, for reading: a C function gets it as `const DLTensor *`.
///
/// It reports the rights that it gives, which are not those of the tensor that it borrows: it is
/// [`READ_ONLY`](crate::Flags::READ_ONLY), and of class [`Frozen`](crate::Access::Frozen) at most.
///
/// ```
/// use dlbridge::TensorRef;
///
/// let numbers = [1.0_f32, 2.0, 3.0];
/// let tensor = TensorRef::from(&numbers[..]);
/// assert_eq!(tensor.shape(), [3]);
/// // tensor.with_raw(|descriptor| unsafe { some_c_function(descriptor) });
/// ```
pub struct TensorRef<'a>(Borrowed<'a>);

impl<'a> TensorRef<'a> {
    metadata!();
    reading!();

    pub(crate) fn from_checked(checked: Checked<'a>) -> Self {
        Self::from_borrowed(Borrowed::from_checked(checked))
    }

    /// The only way to make one, which takes the rights that a borrow does not give.
    #[inline]
    pub(crate) fn from_borrowed(borrowed: Borrowed<'a>) -> Self {
        Self(borrowed.into_read_only())
    }

    #[inline]
    pub(crate) fn borrowed(&self) -> &Borrowed<'a> {
        &self.0
    }

    /// Whether two different indices may reach one element, as those of a broadcast axis do. `false` is a proof; `true` can
    /// be wrong for unusual strides.
    ///
    /// ```
    /// use dlbridge::{Parts, TensorRef};
    ///
    /// let numbers = [1.0_f32, 2.0];
    /// let tensor = TensorRef::from(&numbers[..]);
    /// assert!(!tensor.may_overlap() && tensor.broadcast_to([3, 2])?.may_overlap());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn may_overlap(&self) -> bool {
        layout::may_overlap(self.shape(), self.strides())
    }

    /// Whether an element of one may have a byte in common with an element of the other. `false` is a proof; `true` can be
    /// wrong for parts that interleave.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let matrix = Tensor::from([1, 2, 3, 4, 5, 6]).reshape([2, 3])?;
    /// let matrix = matrix.as_tensor_ref();
    /// let (left, right) = matrix.split_at(1, 1)?;
    /// assert!(!left.may_share_memory(&right) && left.may_share_memory(&matrix));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn may_share_memory(&self, other: &TensorRef<'_>) -> bool {
        let bytes = (self.checked().bytes_of_elements(), other.checked().bytes_of_elements());
        matches!(bytes, (Some(own), Some(other)) if own.overlaps(&other))
    }

    /// Turns the borrow into a view type of another crate, with the lifetime of the borrowed memory.
    ///
    /// ```
    /// use dlbridge::TensorRef;
    ///
    /// let numbers = [1.0_f32, 2.0];
    /// let slice: &[f32] = TensorRef::from(&numbers[..]).into_as()?;
    /// assert_eq!(slice.as_ptr(), numbers.as_ptr());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`view_as`](Self::view_as).
    #[inline]
    pub fn into_as<V: TryFrom<Self>>(self) -> Result<V, V::Error> {
        V::try_from(self)
    }
}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("TensorRef", &self.checked(), f)
    }
}

/// A mutably borrowed tensor: a C function gets it as `DLTensor *`.
///
/// ```
/// use dlbridge::TensorMut;
///
/// let mut numbers = vec![1.0_f32, 2.0, 3.0];
/// let mut tensor = TensorMut::from(&mut numbers[..]);
/// tensor.as_slice_mut::<f32>()?[0] = 10.0;
/// assert_eq!(numbers, [10.0, 2.0, 3.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct TensorMut<'a>(pub(crate) Borrowed<'a>);

impl<'a> TensorMut<'a> {
    metadata!();
    reading!();
    writing!();

    /// The elements of an axis before an index, and those from the index on, to write both.
    ///
    /// ```
    /// use dlbridge::TensorMut;
    ///
    /// let mut numbers = [1, 2, 3];
    /// let (mut front, mut back) = TensorMut::from(&mut numbers[..]).split_at(0, 1)?;
    /// front.as_slice_mut::<i32>()?.copy_from_slice(&back.as_slice::<i32>()?[..1]);
    /// back.as_slice_mut::<i32>()?.fill(0);
    /// assert_eq!(numbers, [2, 0, 0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](crate::Error::Part) if there is no such axis, or it is shorter;
    /// [`Overlapping`](crate::Error::Overlapping) or [`SubByte`](crate::Error::SubByte) if both could reach one
    /// byte.
    pub fn split_at(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        let (front, back) = self.0.split(axis, index)?;
        Ok((Self(front), Self(back)))
    }

    /// Turns the borrow into a mutable view type of another crate, with the lifetime of the borrowed
    /// memory.
    ///
    /// ```
    /// use dlbridge::TensorMut;
    ///
    /// let mut numbers = [1.0_f32, 2.0];
    /// let slice: &mut [f32] = TensorMut::from(&mut numbers[..]).into_as()?;
    /// slice[0] = 10.0;
    /// assert_eq!(numbers, [10.0, 2.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`view_mut_as`](Self::view_mut_as).
    #[inline]
    pub fn into_as<V: TryFrom<Self>>(self) -> Result<V, V::Error> {
        V::try_from(self)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("TensorMut", &self.checked(), f)
    }
}
