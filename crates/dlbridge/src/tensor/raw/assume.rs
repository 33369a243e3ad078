//! Access to memory of any class, on the caller's promise. Type, device, layout and alignment are
//! checked as always.

use crate::raw::borrowed::Borrowed;
use crate::raw::write::ElementsMut;
use crate::{Access, Element, Error, Flags, Tensor, TensorMut, TensorRef, ViewMut};

impl Tensor {
    /// Borrows the memory as class [`Frozen`](Access::Frozen), whatever its class, so that every
    /// conversion to a shared borrow works.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1, 2, 3]).into_shared();
    /// // SAFETY: no other code has the tensor.
    /// let numbers: &[i32] = unsafe { tensor.assume_frozen() }.into_as()?;
    /// assert_eq!(numbers, [1, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// No code, in whatever language, writes the elements while the borrow lives.
    #[must_use]
    #[inline]
    pub unsafe fn assume_frozen(&self) -> TensorRef<'_> {
        let mut borrowed = Borrowed::from_parts(self.parts());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_class(Access::Frozen, Flags::READ_ONLY) };
        TensorRef::from_borrowed(borrowed)
    }

    /// Borrows the memory as class [`Exclusive`](Access::Exclusive), whatever its class, so that
    /// every conversion to a mutable borrow works.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut tensor = Tensor::from(Tensor::from(vec![1, 2, 3]).into_shared());
    /// // SAFETY: no other code has the tensor.
    /// let numbers: &mut [i32] = unsafe { tensor.assume_exclusive() }?.into_as()?;
    /// numbers[0] = 10;
    /// # assert_eq!(tensor.view::<i32>()?.to_vec(), [10, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// No other code, in whatever language, reads or writes the elements while the borrow lives.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly).
    #[inline]
    pub unsafe fn assume_exclusive(&mut self) -> Result<TensorMut<'_>, Error> {
        self.parts().check_writable()?;
        let mut borrowed = Borrowed::from_parts(self.parts());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_class(Access::Exclusive, Flags::NONE) };
        Ok(TensorMut(borrowed))
    }

    /// A typed view to write through, whatever the class. It needs no `&mut`, because an argument
    /// of a Python function has none.
    ///
    /// # Safety
    ///
    /// No other code, in whatever language, reads or writes the elements while the view lives.
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
