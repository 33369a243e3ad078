//! New tensors computed from views, in one pass.

use crate::{Element, Error, Tensor, View};

impl<T: Element> View<'_, T> {
    /// Computes a new tensor of the same shape in one pass: contiguous, 64-byte aligned, exclusive.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
    /// let scaled = tensor.view::<f32>()?.map_to_tensor(|x| 2.0 * x)?;
    /// assert_eq!(scaled.as_slice::<f32>()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SizeOverflow`](crate::DescriptorError::SizeOverflow) or
    /// [`OutOfMemory`](Error::OutOfMemory), where a broadcast axis gives the view more elements than
    /// there is memory.
    #[inline]
    pub fn map_to_tensor<U: Element>(&self, function: impl FnMut(T) -> U) -> Result<Tensor, Error> {
        let buffer = self.elements.map_to_buffer(function);
        Tensor::filling(buffer?, U::DTYPE, self.shape())
    }

    /// Computes a new tensor from the elements of two views of the same shape, in one pass:
    /// contiguous, 64-byte aligned, exclusive.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let (a, b) = (Tensor::from([1, 2, 3]), Tensor::from([10.0_f64, 20.0, 30.0]));
    /// let (a, b) = (a.view::<i32>()?, b.view::<f64>()?);
    /// let sum = a.zip_to_tensor(&b, |a, b| f64::from(a) + b)?;
    /// assert_eq!(sum.as_slice::<f64>()?, [11.0, 22.0, 33.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch) if the shapes differ, and those of [`map_to_tensor`](Self::map_to_tensor).
    #[inline]
    pub fn zip_to_tensor<V: Element, U: Element>(
        &self,
        other: &View<'_, V>,
        function: impl FnMut(T, V) -> U,
    ) -> Result<Tensor, Error> {
        same_shape(self.shape(), other.shape())?;
        let buffer = self.elements.zip_to_buffer(&other.elements, function);
        Tensor::filling(buffer?, U::DTYPE, self.shape())
    }
}

pub(super) fn same_shape(expected: &[i64], found: &[i64]) -> Result<(), Error> {
    if expected.len() != found.len() {
        return Err(Error::rank(expected.len(), found.len()));
    }
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(axis) => Err(Error::extent(axis, expected[axis] as usize, found[axis])),
    }
}
