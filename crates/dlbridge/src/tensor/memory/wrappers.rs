//! Types around a [`Tensor`]: `ArcTensor`, whose handles share one header, which counts them, and slices that own
//! their tensor.
//! Invariants: the handle inside an `ArcTensor` has a header, and its class is not exclusive (R3, R4). The tensor inside
//! a slice has its elements, and is not used before it is taken out.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::layout::{Bytes, Cut};
use crate::memory::handle::lease::Kept;
use crate::{Error, Plain, Tensor};

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

    /// The part at one index of the first axis.
    pub(in crate::tensor) fn row(&self, index: usize) -> Result<Self, Error> {
        // SAFETY: with a header, and not exclusive (this module's invariant; R4).
        unsafe { self.0.0.shared_row(index) }.map(|handle| Self(Tensor(handle)))
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

/// A slice that owns its [`Tensor`], for APIs that take an owner of a slice.
///
/// Made by [`Tensor::into_slice`] and [`Tensor::into_bytes`], from memory that no other code writes.
///
/// ```
/// use dlbridge::Tensor;
///
/// let slice = Tensor::from(vec![1.0_f32, 2.0]).into_slice::<f32>()?;
/// let thread = std::thread::spawn(move || slice.iter().sum::<f32>());
/// assert_eq!(thread.join().unwrap(), 3.0);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct TensorSlice<T> {
    data: *const T,
    len: usize,
    tensor: Tensor,
}

// SAFETY: it owns elements as a `Box<[T]>` does, and a tensor, which may go to any thread (R9).
unsafe impl<T: Send> Send for TensorSlice<T> {}
// SAFETY: it gives out a `&[T]` (R9).
unsafe impl<T: Sync> Sync for TensorSlice<T> {}

/// A mutable slice that owns its [`Tensor`].
///
/// Made by [`Tensor::into_slice_mut`], from memory that no other code can reach.
///
/// ```
/// use dlbridge::Tensor;
///
/// let mut slice = Tensor::from(vec![1, 2, 3]).into_slice_mut::<i32>()?;
/// slice.reverse();
/// assert_eq!(slice.into_tensor().as_slice::<i32>()?, [3, 2, 1]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct TensorSliceMut<T> {
    data: *mut T,
    len: usize,
    tensor: Tensor,
}

// SAFETY: it owns elements as a `Box<[T]>` does, and a tensor, which may go to any thread (R9).
unsafe impl<T: Send> Send for TensorSliceMut<T> {}
// SAFETY: it gives out a `&[T]` (R9).
unsafe impl<T: Sync> Sync for TensorSliceMut<T> {}

impl Tensor {
    /// Turns the tensor into a slice that owns it. An error drops the tensor; to keep it, call
    /// [`as_slice`](Self::as_slice) first.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn into_slice<T: Plain>(self) -> Result<TensorSlice<T>, Error> {
        let slice = self.as_slice::<T>()?;
        let (data, len) = (slice.as_ptr(), slice.len());
        Ok(TensorSlice { data, len, tensor: self })
    }

    /// Turns a tensor of any type into the bytes of its elements, which own it.
    ///
    /// # Errors
    ///
    /// As [`as_bytes`](Self::as_bytes).
    pub fn into_bytes(self) -> Result<TensorSlice<u8>, Error> {
        let bytes = self.as_bytes()?;
        let (data, len) = (bytes.as_ptr(), bytes.len());
        Ok(TensorSlice { data, len, tensor: self })
    }

    /// Turns the tensor into a mutable slice that owns it.
    ///
    /// # Errors
    ///
    /// As [`as_slice_mut`](Self::as_slice_mut).
    pub fn into_slice_mut<T: Plain>(mut self) -> Result<TensorSliceMut<T>, Error> {
        let slice = self.as_slice_mut::<T>()?;
        let (data, len) = (slice.as_mut_ptr(), slice.len());
        Ok(TensorSliceMut { data, len, tensor: self })
    }
}

impl<T> Deref for TensorSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: a slice of the tensor (R5), which is kept unused; its memory does not move with it
        // (R2).
        unsafe { slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T> Deref for TensorSliceMut<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: as for `TensorSlice` (R2, R5).
        unsafe { slice::from_raw_parts(self.data, self.len) }
    }
}

impl<T> DerefMut for TensorSliceMut<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: a mutable slice of the tensor (R5), and `self` is borrowed mutably as long (R2).
        unsafe { slice::from_raw_parts_mut(self.data, self.len) }
    }
}

impl<T> AsMut<[T]> for TensorSliceMut<T> {
    fn as_mut(&mut self) -> &mut [T] {
        self
    }
}

/// Methods and traits of both types.
macro_rules! owned_slice {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Returns the tensor.
            #[must_use]
            pub fn into_tensor(self) -> Tensor {
                self.tensor
            }
        }

        impl<T> AsRef<[T]> for $name<T> {
            fn as_ref(&self) -> &[T] {
                self
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

owned_slice!(TensorSlice);
owned_slice!(TensorSliceMut);
