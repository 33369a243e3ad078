//! `TensorSlice` and `TensorSliceMut`: slices that own their tensor.
//! Invariant: the tensor inside has these elements, and is not used before it is taken out.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

use crate::{Error, Plain, Tensor};

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
