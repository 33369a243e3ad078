//! `TensorRef` and `TensorMut`: borrowed arrays, described for functions that take a plain `DLTensor`.

use std::fmt;

use super::accessors::{metadata, reading, writing};
use crate::raw::Checked;
use crate::raw::descriptor::Borrowed;

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
        crate::tensor::debug("TensorRef", &self.checked(), f)
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
    pub fn split_at(self, axis: usize, index: usize) -> Result<(Self, Self), crate::Error> {
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
        crate::tensor::debug("TensorMut", &self.checked(), f)
    }
}
