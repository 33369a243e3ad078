//! `Tensor`, the owning handle, and the types that borrow, share or view one.

mod accessors;
mod builder;
mod map;
mod part_verbs;
mod parts;
mod raw;
mod rows;
mod tensor_ref;
mod view;

use std::fmt;

pub use builder::Builder;
pub use parts::ViewPart;
#[cfg(any(feature = "arrow-60", feature = "burn-0_22"))]
pub(crate) use raw::Nested;
pub use raw::{SharedTensor, TensorSlice, TensorSliceMut, ffi};
pub use rows::{AxisIter, Indexed, Pieces, Rows, Zip};
pub use tensor_ref::{TensorMut, TensorRef};
pub use view::{View, ViewMut};

use accessors::{metadata, reading, writing};

use crate::raw::{Handle, Parts};
use crate::{Error, Flags};

/// An owning handle to tensor memory, wherever it came from.
///
/// One type for memory that Rust owns and for memory of another language, whatever the version
/// of its descriptor. Dropping it releases the memory exactly once, from any thread.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
/// assert_eq!(tensor.shape(), [3]);
/// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct Tensor(pub(crate) Handle);

impl Tensor {
    metadata!();
    reading!();
    writing!();

    #[inline]
    pub(crate) fn parts(&self) -> Parts<'_> {
        self.0.parts()
    }

    pub(crate) fn contiguous_copy(parts: Parts<'_>) -> Result<Self, Error> {
        parts.check_host()?;
        let (dtype, shape) = (parts.dtype(), parts.shape());
        let mut flags = Flags::IS_COPIED;
        if parts.flags().contains(Flags::SUBBYTE_PADDED) {
            flags |= Flags::SUBBYTE_PADDED;
        }
        Self::in_buffer(dtype, shape, flags, |_| parts.to_buffer())
    }

    /// The same memory, described without owning it.
    #[must_use]
    pub fn as_tensor_ref(&self) -> TensorRef<'_> {
        TensorRef::from_parts(self.parts())
    }

    /// Turns the tensor into an owned type of another crate, which keeps the memory, without a copy:
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

    /// Takes the owner back out, if this tensor was made from one of type `O` and never left
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
    /// The tensor itself, if it has another owner. So too if it holds truth values of class
    /// [`Shared`](crate::Access::Shared): others may have written bytes that are no `bool`.
    pub fn into_owner<O: 'static>(self) -> Result<O, Self> {
        self.0.into_owner().map_err(Self)
    }

    /// The producer's descriptor as it was, before normalisation; `None` for memory that
    /// Rust owns.
    #[must_use]
    pub fn producer(&self) -> Option<Producer> {
        self.0.raw_fields().map(|raw| Producer {
            version: raw.version,
            byte_offset: raw.byte_offset,
            has_strides: raw.has_strides,
            has_deleter: raw.has_deleter,
        })
    }

    /// Whether the memory is a producer's, whose deleter runs when the last tensor over it is
    /// dropped: this one, or one that shares its memory.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// assert!(!Tensor::from(vec![1, 2, 3]).is_foreign());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_foreign(&self) -> bool {
        self.0.is_foreign()
    }
}

/// What a producer's descriptor says where a [`Tensor`] says something simpler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Producer {
    /// Major and minor version; `None` for a descriptor of DLPack before 1.0.
    pub version: Option<(u32, u32)>,
    /// The descriptor's byte offset, which [`Tensor::data_ptr`] has applied.
    pub byte_offset: u64,
    /// Whether strides were given, rather than a null pointer.
    pub has_strides: bool,
    /// Whether there is a deleter.
    pub has_deleter: bool,
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("Tensor", &self.parts(), f)
    }
}

pub(crate) fn debug(name: &str, parts: &Parts<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.debug_struct(name)
        .field("dtype", &format_args!("{}", parts.dtype()))
        .field("shape", &parts.shape())
        .field("strides", &parts.strides())
        .field("device", &format_args!("{}", parts.device()))
        .field("flags", &format_args!("{}", parts.flags()))
        .field("access", &format_args!("{}", parts.access()))
        .field("data", &parts.data())
        .finish()
}
