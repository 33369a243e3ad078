//! Access to memory of any class, on the caller's promise. Type, device, layout and alignment are
//! checked as always.

use crate::raw::borrowed::Borrowed;
use crate::{Access, Error, Tensor, TensorMut, TensorRef};

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
        unsafe { borrowed.set_access(Access::Frozen) };
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
        unsafe { borrowed.set_access(Access::Exclusive) };
        Ok(TensorMut(borrowed))
    }
}
