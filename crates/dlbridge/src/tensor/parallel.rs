//! Views on the threads of rayon (feature `rayon`): the same results as the serial methods.

use std::ops::Range;

use rayon::iter::plumbing::{Consumer, Producer, ProducerCallback, UnindexedConsumer, bridge};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::view::same_shape;
use crate::memory::read::Elements;
use crate::memory::{Iter, RowElements};
use crate::{Element, Error, Tensor, View, ViewMut};

/// # On many threads
///
/// With the feature `rayon`, for any strides. `par_map_to_tensor` and `par_zip_to_tensor` run on
/// [`thread_pool`](crate::thread_pool). A view is also a parallel iterator over its elements, to reduce, zip or collect. It
/// runs, as any of rayon, on the pool that it is called in. In a process that may be forked, call it within
/// [`thread_pool().install`](crate::thread_pool):
///
/// ```
/// use dlbridge::{Parts, Tensor};
/// use rayon::prelude::*;
///
/// let (a, b) = (Tensor::from([1.0, 2.0, 3.0]), Tensor::from([4.0, 5.0, 6.0]));
/// let (a, b) = (a.view::<f64>()?, b.view::<f64>()?);
/// assert_eq!(a.par_iter().sum::<f64>(), 6.0);
/// let reversed = b.flip(0)?;
/// let dot: f64 = a.par_iter().zip(&reversed.view()).map(|(x, y)| x * y).sum();
/// assert_eq!(dot, 28.0);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<'a, T: Element> View<'a, T> {
    /// [`map_to_tensor`](Self::map_to_tensor) on many threads.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
    /// let roots = tensor.view::<f32>()?.par_map_to_tensor(f32::sqrt)?;
    /// assert_eq!(roots.as_slice::<f32>()?[0], 1.0);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The function is called on several threads at a time, so it cannot change what it borrows:
    ///
    /// ```compile_fail,E0277
    /// # use std::cell::Cell;
    /// # use dlbridge::Tensor;
    /// let (tensor, count) = (Tensor::from([1, 2, 3]), Cell::new(0));
    /// tensor.view::<i32>()?.par_map_to_tensor(|x| {
    ///     count.set(count.get() + 1);
    ///     x
    /// })?;
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As there.
    pub fn par_map_to_tensor<U: Element>(
        &self,
        function: impl Fn(T) -> U + Sync,
    ) -> Result<Tensor, Error> {
        let buffer = self.elements.par_map_to_buffer(function);
        Tensor::filling(buffer?, U::DTYPE, self.shape())
    }

    /// [`zip_to_tensor`](Self::zip_to_tensor) on many threads.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn par_zip_to_tensor<V: Element, U: Element>(
        &self,
        other: &View<'_, V>,
        function: impl Fn(T, V) -> U + Sync,
    ) -> Result<Tensor, Error> {
        same_shape(self.shape(), other.shape())?;
        let buffer = self.elements.par_zip_to_buffer(&other.elements, function);
        Tensor::filling(buffer?, U::DTYPE, self.shape())
    }

    /// [`rows`](Self::rows) for many threads.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    /// use rayon::prelude::*;
    ///
    /// let tensor = Tensor::from([1, 2, 3, 4]).reshape([2, 2])?;
    /// let view = tensor.view::<i32>()?;
    /// let sums: Vec<i32> = view.par_rows().map(|row| row.iter().sum()).collect();
    /// assert_eq!(sums, [3, 7]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn par_rows(&self) -> impl IndexedParallelIterator<Item = View<'a, T>> + use<'a, T> {
        let rows = RowElements::new(self.elements, 1);
        (0..self.rows().len()).into_par_iter().map(move |row| View { elements: rows.row(row) })
    }
}

/// # On many threads
///
/// With the feature `rayon`, for elements of which no two overlap.
impl<T: Element> ViewMut<'_, T> {
    /// [`map_inplace`](Self::map_inplace) on many threads.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
    /// tensor.view_mut::<f32>()?.par_map_inplace(|x| x + 0.5)?;
    /// assert_eq!(tensor.as_slice::<f32>()?, [1.5, 2.5, 3.5]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// ```compile_fail,E0594
    /// # use dlbridge::Tensor;
    /// # let mut tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
    /// let mut sum = 0.0;
    /// tensor.view_mut::<f32>()?.par_map_inplace(|x| {
    ///     sum += x;
    ///     sum
    /// })?;
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Overlapping`](Error::Overlapping) if two indices may reach one element.
    pub fn par_map_inplace(&mut self, function: impl Fn(T) -> T + Sync) -> Result<(), Error> {
        self.elements_mut().par_replace(function)
    }

    /// The rows, the elements along the last axis, to write on many threads.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    /// use rayon::prelude::*;
    ///
    /// let mut tensor = Tensor::from([3.0, 1.0, 4.0, 4.0]).reshape([2, 2])?;
    /// tensor.view_mut::<f64>()?.par_rows_mut()?.for_each(|mut row| {
    ///     let sum: f64 = row.as_view().iter().sum();
    ///     row.map_inplace(|x| x / sum);
    /// });
    /// assert_eq!(tensor.as_slice::<f64>()?, [0.75, 0.25, 0.5, 0.5]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The view is borrowed while there are rows of it:
    ///
    /// ```compile_fail,E0499
    /// # use dlbridge::Tensor;
    /// # use rayon::prelude::*;
    /// # let mut tensor = Tensor::from([1, 2, 3]);
    /// let mut view = tensor.view_mut::<i32>()?;
    /// let rows = view.par_rows_mut()?;
    /// view.par_map_inplace(|x| x)?;
    /// rows.for_each(|mut row| row.fill(0));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Overlapping`](Error::Overlapping) if two indices may reach one element.
    pub fn par_rows_mut(
        &mut self,
    ) -> Result<impl IndexedParallelIterator<Item = ViewMut<'_, T>>, Error> {
        Ok(self.elements_mut().par_rows()?.map(ViewMut::from_elements))
    }
}

/// The elements of a [`View`] on many threads, by value.
#[derive(Clone, Debug)]
pub struct ParIter<'a, T>(Elements<'a, T>);

impl<'a, T: Element> IntoParallelIterator for View<'a, T> {
    type Item = T;
    type Iter = ParIter<'a, T>;

    fn into_par_iter(self) -> ParIter<'a, T> {
        ParIter(self.elements)
    }
}

impl<'a, T: Element> IntoParallelIterator for &View<'a, T> {
    type Item = T;
    type Iter = ParIter<'a, T>;

    fn into_par_iter(self) -> ParIter<'a, T> {
        ParIter(self.elements)
    }
}

impl<T: Element> ParallelIterator for ParIter<'_, T> {
    type Item = T;

    fn drive_unindexed<C: UnindexedConsumer<T>>(self, consumer: C) -> C::Result {
        bridge(self, consumer)
    }

    fn opt_len(&self) -> Option<usize> {
        Some(self.len())
    }
}

impl<T: Element> IndexedParallelIterator for ParIter<'_, T> {
    fn len(&self) -> usize {
        self.0.checked().len()
    }

    fn drive<C: Consumer<T>>(self, consumer: C) -> C::Result {
        bridge(self, consumer)
    }

    fn with_producer<C: ProducerCallback<T>>(self, callback: C) -> C::Output {
        callback.callback(Numbers { range: 0..self.len(), elements: self.0 })
    }
}

/// The elements of a range of numbers.
struct Numbers<'a, T> {
    elements: Elements<'a, T>,
    range: Range<usize>,
}

impl<'a, T: Element> Producer for Numbers<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.elements.iter_of(self.range)
    }

    fn split_at(self, index: usize) -> (Self, Self) {
        let (elements, middle) = (self.elements, self.range.start + index);
        let front = Self { elements, range: self.range.start..middle };
        (front, Self { elements, range: middle..self.range.end })
    }
}
