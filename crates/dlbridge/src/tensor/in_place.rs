//! Writing the elements of a `ViewMut` from another view, and its disjoint parts for many threads.

use super::view::same_shape;
use crate::{Element, Error, Parts, View, ViewMut};

/// # From another view
impl<'a, T: Element> ViewMut<'a, T> {
    /// Copies the elements of another view. Its axes of extent 1 are repeated, and new axes are added in
    /// front, as in NumPy: `x[...] = y`.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let (mut table, row) = (Tensor::from([0; 6]).reshape([2, 3])?, Tensor::from([1, 2, 3]));
    /// table.view_mut::<i32>()?.assign(&row.view()?)?;
    /// assert_eq!(table.as_slice::<i32>()?, [1, 2, 3, 1, 2, 3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shapes do not fit.
    pub fn assign(&mut self, source: &View<'_, T>) -> Result<(), Error> {
        self.zip_inplace(source, |_, new| new)
    }

    /// Replaces each element by `function` of it and of the element of another view, in row-major order.
    /// The other view is broadcast as by [`assign`](Self::assign).
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let (mut sums, x) = (Tensor::from([1.0, 2.0]), Tensor::from([10_i32, 20]));
    /// sums.view_mut::<f64>()?.zip_inplace(&x.view::<i32>()?, |sum, x| sum + f64::from(x))?;
    /// assert_eq!(sums.as_slice::<f64>()?, [11.0, 22.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shapes do not fit.
    #[inline]
    pub fn zip_inplace<U: Element>(
        &mut self,
        other: &View<'_, U>,
        mut function: impl FnMut(T, U) -> T,
    ) -> Result<(), Error> {
        match self.elements_mut().replace_line(&other.elements, &mut function) {
            Ok(()) => Ok(()),
            Err(elements) => Self::zip_any((ViewMut::from_elements(elements), *other), function),
        }
    }

    /// Both views in one argument: of two, LLVM passes the address of the caller's own, which then leave the registers.
    #[inline(never)]
    fn zip_any<U: Element>(
        (mut target, other): (ViewMut<'_, T>, View<'_, U>),
        function: impl FnMut(T, U) -> T,
    ) -> Result<(), Error> {
        if same_shape(target.shape(), other.shape()).is_ok() {
            target.elements_mut().replace_zipped(&other.elements, function);
        } else {
            let other = other.broadcast_to(target.shape())?;
            target.elements_mut().replace_zipped(&other.view().elements, function);
        }
        Ok(())
    }

    /// [`zip_inplace`](Self::zip_inplace) on many threads, in any order.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let (mut sums, x) = (Tensor::from([1.0, 2.0]), Tensor::from([10.0, 20.0]));
    /// sums.view_mut::<f64>()?.par_zip_inplace(&x.view::<f64>()?, |sum, x| sum + x)?;
    /// assert_eq!(sums.as_slice::<f64>()?, [11.0, 22.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shapes do not fit, and [`Overlapping`](Error::Overlapping) if two
    /// indices may reach one element.
    #[cfg(feature = "rayon")]
    pub fn par_zip_inplace<U: Element>(
        &mut self,
        other: &View<'_, U>,
        function: impl Fn(T, U) -> T + Sync,
    ) -> Result<(), Error> {
        if same_shape(self.shape(), other.shape()).is_ok() {
            return self.elements_mut().par_replace_zipped(&other.elements, function);
        }
        let other = other.broadcast_to(self.shape())?;
        self.elements_mut().par_replace_zipped(&other.view().elements, function)
    }

    /// The elements of an axis before an index, and those from the index on, to write both.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut tensor = Tensor::from(vec![1, 2, 3]);
    /// let (mut front, mut back) = tensor.view_mut::<i32>()?.split_at(0, 1)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || front.fill(0));
    ///     scope.spawn(move || back.map_inplace(|x| x * 10));
    /// });
    /// assert_eq!(tensor.as_slice::<i32>()?, [0, 20, 30]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it is shorter;
    /// [`Overlapping`](Error::Overlapping) if both could reach one element.
    pub fn split_at(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        let (front, back) = self.into_elements().split(axis, index)?;
        Ok((Self::from_elements(front), Self::from_elements(back)))
    }

    /// The same view for a shorter time, after which this one can be used again.
    ///
    /// ```compile_fail,E0499
    /// # use dlbridge::{Parts, Tensor};
    /// let mut tensor = Tensor::from([1, 2, 3]);
    /// let mut view = tensor.view_mut::<i32>()?;
    /// let mut front = view.reborrow().slice(0, ..2)?;
    /// view.reborrow().fill(0); // while `front` is used below
    /// front.fill(1);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut::from_elements(self.elements_mut().reborrow())
    }

    /// Consecutive parts of `size` indices of an axis each, and a last one of the rest: to write each on a
    /// thread of its own. Chunks of chunks along another axis are tiles.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let mut image = Tensor::from([0_u8; 15]).reshape([3, 5])?;
    /// std::thread::scope(|scope| -> Result<(), dlbridge::Error> {
    ///     for (row, band) in image.view_mut::<u8>()?.into_chunks(0, 2)?.enumerate() {
    ///         for (column, mut tile) in band.into_chunks(1, 3)?.enumerate() {
    ///             scope.spawn(move || tile.fill((10 * row + column) as u8));
    ///         }
    ///     }
    ///     Ok(())
    /// })?;
    /// assert_eq!(image.as_slice::<u8>()?, [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 10, 10, 10, 11, 11]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis or the size is 0, and
    /// [`Overlapping`](Error::Overlapping) if two indices may reach one element.
    pub fn into_chunks(self, axis: usize, size: usize) -> Result<ChunksMut<'a, T>, Error> {
        let count = self.as_view().chunks(axis, size)?.len();
        self.check_disjoint()?;
        Ok(ChunksMut { rest: Some(self), count, axis, size })
    }

    fn check_disjoint(&self) -> Result<(), Error> {
        self.as_view().elements.checked().check_disjoint()
    }
}

/// The parts of a [`ViewMut`] along an axis, from [`ViewMut::into_chunks`].
#[derive(Debug)]
pub struct ChunksMut<'a, T: Element> {
    rest: Option<ViewMut<'a, T>>,
    /// The number of parts in `rest`.
    count: usize,
    axis: usize,
    size: usize,
}

impl<'a, T: Element> Iterator for ChunksMut<'a, T> {
    type Item = ViewMut<'a, T>;

    fn next(&mut self) -> Option<ViewMut<'a, T>> {
        self.count = self.count.checked_sub(1)?;
        let rest = self.rest.take()?;
        if self.count == 0 {
            return Some(rest);
        }
        let (front, back) = rest.split_at(self.axis, self.size).expect("checked by `into_chunks`");
        self.rest = Some(back);
        Some(front)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl<T: Element> ExactSizeIterator for ChunksMut<'_, T> {}
