//! Access to memory of class `Shared`, on the caller's word.
//! Access that needs no word does not belong here (see `Tensor` and `View`).
//! Invariant: the class is all that goes unchecked; type, device, layout and alignment are not.

use super::Plain;
use super::write::ElementsMut;
use crate::{Element, Error, Tensor, ViewMut};

impl Tensor {
    /// The elements as a slice, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements while the slice lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_slice_unchecked<T: Plain>(&self) -> Result<&[T], Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().slice_unchecked() }
    }

    /// The elements as a mutable slice, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements while the slice lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_slice_mut`](Self::as_slice_mut), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_slice_mut_unchecked<T: Plain>(&mut self) -> Result<&mut [T], Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().slice_mut_unchecked() }
    }

    /// A typed view to write through, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly), [`DTypeMismatch`](Error::DTypeMismatch) or
    /// [`NotHostAccessible`](Error::NotHostAccessible).
    pub unsafe fn view_mut_unchecked<T: Element>(&self) -> Result<ViewMut<'_, T>, Error> {
        // SAFETY: the caller's duty.
        unsafe { ElementsMut::new(self.parts()) }.map(ViewMut::from_elements)
    }
}

#[cfg(feature = "ndarray-0_17")]
impl Tensor {
    /// The elements as an ndarray view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_array`](Self::as_array), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_array_unchecked<T: Plain, D: ndarray::Dimension>(
        &self,
    ) -> Result<ndarray::ArrayView<'_, T, D>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().array_unchecked() }
    }

    /// The elements as a mutable ndarray view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_array_mut`](Self::as_array_mut), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_array_mut_unchecked<T: Plain, D: ndarray::Dimension>(
        &mut self,
    ) -> Result<ndarray::ArrayViewMut<'_, T, D>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().array_mut_unchecked() }
    }
}
