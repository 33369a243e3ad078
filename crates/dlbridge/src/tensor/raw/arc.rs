//! `ArcTensor`: handles that share one header, which counts them.
//! Invariant: the handle inside has a header, and its class is not exclusive (R3, R4).

use std::fmt;
use std::ops::Deref;

use crate::layout::Bytes;
use crate::layout::Cut;
use crate::raw::handle::lease::Kept;
use crate::{Error, Tensor};

/// A tensor that can be cloned: each clone is another handle to the same memory, which is freed with
/// the last of them, on any thread.
///
/// Like an [`Arc`](std::sync::Arc) of a tensor, with the count stored in the header: freezing memory
/// that Rust owns allocates nothing, and sharing it writable allocates a second header, by which a binding knows
/// how long Rust keeps it. [`Tensor::into_shared`] and [`Tensor::into_frozen`] make one.
///
/// ```
/// use dlbridge::Tensor;
///
/// let shared = Tensor::from(vec![1.5_f32, 2.5]).into_shared();
/// let another = Tensor::from(shared.clone());
/// drop(shared);
/// assert_eq!(another.view::<f32>()?.to_vec(), [1.5, 2.5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct ArcTensor(Tensor);

impl Tensor {
    /// Shares the memory writable. Memory of class [`Exclusive`](crate::Access::Exclusive) becomes
    /// [`Shared`](crate::Access::Shared) permanently: other libraries may write it, and Rust reads it
    /// through [`view`](Self::view). Memory of another class keeps its class.
    ///
    /// ```
    /// use dlbridge::{Access, Tensor};
    ///
    /// let shared = Tensor::from(vec![1, 2, 3]).into_shared();
    /// assert_eq!(shared.access(), Access::Shared);
    /// assert!(!shared.is_read_only());
    /// ```
    #[must_use]
    #[inline]
    pub fn into_shared(mut self) -> ArcTensor {
        self.0.demote();
        ArcTensor(Self(self.0.with_header().under_lease()))
    }

    /// As [`into_shared`](Self::into_shared), for handles that only code outside Rust reads through.
    #[inline]
    pub(super) fn into_given(mut self, borrow: fn(&Bytes) -> Kept) -> ArcTensor {
        self.0.demote();
        ArcTensor(Self(self.0.given(Some(borrow)).with_header()))
    }

    /// Shares the memory read-only. Memory of class [`Exclusive`](crate::Access::Exclusive) becomes
    /// [`Frozen`](crate::Access::Frozen) permanently, so that each clone gives slices. Memory of class
    /// [`Shared`](crate::Access::Shared) stays shared: other libraries that already have it may still
    /// write it.
    ///
    /// ```
    /// use dlbridge::{Access, Tensor};
    ///
    /// let frozen = Tensor::from(vec![1, 2, 3]).into_frozen();
    /// let another = frozen.clone();
    /// assert_eq!((another.access(), another.is_read_only()), (Access::Frozen, true));
    /// assert_eq!(another.as_slice::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn into_frozen(mut self) -> ArcTensor {
        self.0.freeze();
        ArcTensor(Self(self.0.with_header()))
    }
}

impl ArcTensor {
    /// The tensor, if there is no other handle to it. It keeps the class of the shared tensor.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let shared = Tensor::from(vec![1_u8, 2, 3]).into_shared();
    /// let another = shared.clone();
    /// assert!(shared.into_inner().is_none());
    /// let vec: Vec<u8> = another.into_inner().unwrap().into_owner().unwrap();
    /// assert_eq!(vec, [1, 2, 3]);
    /// ```
    #[must_use]
    pub fn into_inner(self) -> Option<Tensor> {
        self.0.0.without_header().map(Tensor)
    }

    pub(in crate::tensor) fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        // SAFETY: with a header, and not exclusive (this module's invariant; R4).
        unsafe { self.0.0.shared_part(cut) }.map(|handle| Self(Tensor(handle)))
    }
}

impl From<ArcTensor> for Tensor {
    #[inline]
    fn from(tensor: ArcTensor) -> Self {
        tensor.0
    }
}

impl Clone for ArcTensor {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: with a header, and not exclusive (this module's invariant; R4).
        Self(Tensor(unsafe { self.0.0.another() }))
    }
}

impl Deref for ArcTensor {
    type Target = Tensor;

    #[inline]
    fn deref(&self) -> &Tensor {
        &self.0
    }
}

impl fmt::Debug for ArcTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
