//! Access to memory of any class, on the caller's promise. Type, device, layout and alignment are
//! checked as always.

use crate::raw::borrowed::Borrowed;
use crate::raw::write::ElementsMut;
use crate::{Access, Element, Error, Flags, Tensor, TensorMut, TensorRef, ViewMut};

impl Tensor {
    /// Borrows memory of any class as [`Frozen`](Access::Frozen), so that every conversion to a shared
    /// borrow works.
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
        let mut borrowed = Borrowed::from_checked(self.checked());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_class(Access::Frozen, Flags::READ_ONLY) };
        TensorRef::from_borrowed(borrowed)
    }

    /// Borrows memory of any class as [`Exclusive`](Access::Exclusive), so that every conversion to a
    /// mutable borrow works.
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
        self.checked().check_writable()?;
        let mut borrowed = Borrowed::from_checked(self.checked());
        // SAFETY: the caller's duty (R4).
        unsafe { borrowed.set_class(Access::Exclusive, Flags::NONE) };
        Ok(TensorMut(borrowed))
    }

    /// A typed view to write through, for memory of any class. It takes `&self`, because an argument of
    /// a Python function need not be `mut`.
    ///
    /// # Safety
    ///
    /// While the view lives, no reference to an element exists; while one of its methods runs, no
    /// other thread reads or writes the elements.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](Error::ReadOnly), [`DTypeMismatch`](Error::DTypeMismatch) or
    /// [`NotHostAccessible`](Error::NotHostAccessible).
    pub unsafe fn view_mut_unchecked<T: Element>(&self) -> Result<ViewMut<'_, T>, Error> {
        // SAFETY: the caller's duty.
        unsafe { ElementsMut::new(self.checked()) }.map(ViewMut::from_elements)
    }
}
