//! Access to memory of class `Shared`, on the caller's word.
//! Access that needs no word does not belong here (see `Tensor` and `View`).
//! Invariant: the class is all that goes unchecked; type, device, layout and alignment are not.

use super::Plain;
#[cfg(feature = "nalgebra-0_35")]
use super::arrays::nalgebra_0_35::Rows;
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

#[cfg(feature = "faer-0_24")]
impl Tensor {
    /// The elements as a faer view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_mat`](Self::as_mat), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_mat_unchecked<T: Plain>(&self) -> Result<faer::MatRef<'_, T>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().mat_unchecked() }
    }

    /// The elements as a mutable faer view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_mat_mut`](Self::as_mat_mut), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_mat_mut_unchecked<T: Plain>(&mut self) -> Result<faer::MatMut<'_, T>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().mat_mut_unchecked() }
    }
}

#[cfg(feature = "nalgebra-0_35")]
impl Tensor {
    /// The elements as a nalgebra view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_matrix`](Self::as_matrix), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_matrix_unchecked<T: Plain, R: nalgebra::Dim, C: nalgebra::Dim>(
        &self,
    ) -> Result<nalgebra::MatrixView<'_, T, R, C, nalgebra::U1, nalgebra::Dyn>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().matrix_unchecked(Rows::First) }
    }

    /// The elements as a mutable nalgebra view, whatever the class.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes the elements while the view lives, in whatever language.
    ///
    /// # Errors
    ///
    /// As [`as_matrix_mut`](Self::as_matrix_mut), less
    /// [`SharedMemory`](Error::SharedMemory).
    pub unsafe fn as_matrix_mut_unchecked<T: Plain, R: nalgebra::Dim, C: nalgebra::Dim>(
        &mut self,
    ) -> Result<nalgebra::MatrixViewMut<'_, T, R, C, nalgebra::U1, nalgebra::Dyn>, Error> {
        // SAFETY: the caller's duty.
        unsafe { self.parts().matrix_mut_unchecked(Rows::First) }
    }
}
