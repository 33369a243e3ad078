//! `ArcTensor`: handles that share one header, which counts them.
//! Sharing a tensor that is already in an `Arc` belongs to `share`.
//! Invariants: R3 and R4 of this folder; the handle inside has a header, and its class is not
//! exclusive.

use std::fmt;
use std::ops::Deref;

use crate::layout::Cut;
use crate::{Error, Tensor};

/// A tensor that can be cloned: each clone is another handle to the same memory, which goes with
/// the last of them, on whichever thread.
///
/// What an [`Arc`](std::sync::Arc) of a tensor is, too, but the count stands where the tensor
/// keeps its shape: memory that Rust owns is shared without another allocation.
///
/// Memory that was exclusive becomes shared, as by [`Tensor::into_shared`]: it stays writable, for
/// those who may write shared memory.
///
/// ```
/// use dlbridge::{ArcTensor, Tensor};
///
/// let tensor = ArcTensor::from(Tensor::from(vec![1.5_f32, 2.5]));
/// let another = Tensor::from(tensor.clone());
/// drop(tensor);
/// assert_eq!(another.view::<f32>()?.to_vec(), [1.5, 2.5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct ArcTensor(Tensor);

impl ArcTensor {
    /// The tensor that this was made of, if there is no other handle to it.
    ///
    /// ```
    /// use dlbridge::{ArcTensor, Tensor};
    ///
    /// let tensor = ArcTensor::from(Tensor::from(vec![1_u8, 2, 3]));
    /// let another = tensor.clone();
    /// assert!(tensor.into_inner().is_none());
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

impl From<Tensor> for ArcTensor {
    #[inline]
    fn from(tensor: Tensor) -> Self {
        Self(Tensor(tensor.into_shared().0.with_header()))
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
