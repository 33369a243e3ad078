//! Iterators over a `View`: by rows, by the indices of an axis, by pieces, in pairs, with indices, in lanes.

use std::iter::FusedIterator;
use std::ops::{Index, IndexMut, Range};

use super::view::ViewMut;
use crate::memory::{Iter, RowElements};
use crate::{Element, Error, ErrorKind, Parts, View, ViewPart};

/// # Rows, axes and windows
impl<'a, T: Element> View<'a, T> {
    /// The rows: the elements along the last axis, as views of one axis, in row-major order of the
    /// other axes. [`transpose`](Parts::transpose) first gives columns.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1.0, 2.0, 3.0, 4.0]).reshape([2, 2])?;
    /// let view = tensor.view::<f64>()?;
    /// let sums: Vec<f64> = view.rows().map(|row| row.iter().sum()).collect();
    /// assert_eq!(sums, [3.0, 7.0]);
    /// let sums: Vec<f64> = view.transpose().rows().map(|column| column.iter().sum()).collect();
    /// assert_eq!(sums, [4.0, 6.0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn rows(&self) -> Rows<'a, T> {
        Rows(RowElements::new(self.elements, 1))
    }

    /// The row at an index, counted as [`rows`](Self::rows) counts them.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3, 4]).reshape([2, 2])?;
    /// assert_eq!(tensor.view::<i32>()?.row(1)?.to_vec(), [3, 4]);
    /// assert!(tensor.view::<i32>()?.row(2).is_err());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there are fewer rows.
    pub fn row(&self, index: usize) -> Result<View<'a, T>, Error> {
        let rows = RowElements::new(self.elements, 1);
        if index < rows.len() {
            return Ok(View { elements: rows.row(index) });
        }
        Err(Error::part(
            ErrorKind::Index,
            format_args!("expected a row below {}, found {index}", rows.len()),
        ))
    }

    /// The elements at each index of the first axis, as views of the other axes.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let batch = Tensor::from(vec![1_u8; 24]).reshape([2, 3, 4])?;
    /// for image in batch.view::<u8>()?.outer_iter()? {
    ///     assert_eq!(image.shape(), [3, 4]);
    /// }
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there are no axes.
    pub fn outer_iter(&self) -> Result<Rows<'a, T>, Error> {
        self.extent(0)?;
        Ok(Rows(RowElements::new(self.elements, self.shape().len() - 1)))
    }

    /// The result of [`select`](Parts::select) for each index of an axis. For the first axis,
    /// [`outer_iter`](Self::outer_iter) is quicker.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let image = Tensor::from(vec![1_u8; 24]).reshape([2, 4, 3])?;
    /// for channel in image.view::<u8>()?.axis_iter(2)? {
    ///     assert_eq!(channel.shape(), [2, 4]);
    /// }
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis.
    pub fn axis_iter(&self, axis: usize) -> Result<AxisIter<'a, T>, Error> {
        Ok(AxisIter { view: *self, axis, indices: 0..self.extent(axis)? })
    }

    /// Pieces of `size` indices of an axis, one after the other. The last one may be shorter.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3, 4, 5]);
    /// let view = tensor.view::<i32>()?;
    /// let pieces: Vec<_> = view.chunks(0, 2)?.map(|piece| piece.to_vec()).collect();
    /// assert_eq!(pieces, [vec![1, 2], vec![3, 4], vec![5]]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or the size is 0.
    pub fn chunks(&self, axis: usize, size: usize) -> Result<Pieces<'a, T>, Error> {
        let extent = self.extent(axis)?;
        self.pieces(axis, size, size, extent.div_ceil(size.max(1)))
    }

    /// Pieces of `size` indices of an axis, each one index further than the one before.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 4, 8]);
    /// let view = tensor.view::<i32>()?;
    /// let sums: Vec<i32> = view.windows(0, 3)?.map(|window| window.iter().sum()).collect();
    /// assert_eq!(sums, [7, 14]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or the size is 0.
    pub fn windows(&self, axis: usize, size: usize) -> Result<Pieces<'a, T>, Error> {
        let extent = self.extent(axis)?;
        self.pieces(axis, size, 1, (extent + 1).saturating_sub(size))
    }

    fn pieces(
        &self,
        axis: usize,
        size: usize,
        step: usize,
        count: usize,
    ) -> Result<Pieces<'a, T>, Error> {
        if size == 0 {
            return Err(Error::part(
                ErrorKind::Argument,
                format_args!("expected pieces of one index or more on axis {axis}, found 0"),
            ));
        }
        Ok(Pieces { view: *self, axis, size, step, numbers: 0..count })
    }

    /// The elements of two views of one shape, in pairs, in row-major order.
    ///
    /// `fold` and the methods built on it (`for_each`, `sum`, ...) are the fastest.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let (a, b) = (Tensor::from([1.0_f32, 2.0]), Tensor::from([3_u8, 4]));
    /// let dot: f32 = a.view::<f32>()?.zip(&b.view::<u8>()?)?.map(|(x, y)| x * f32::from(y)).sum();
    /// assert_eq!(dot, 11.0);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shapes differ; [`broadcast_to`](Parts::broadcast_to) makes them one.
    pub fn zip<'b, U: Element>(&self, other: &View<'b, U>) -> Result<Zip<'a, 'b, T, U>, Error> {
        if self.shape() != other.shape() {
            let (shape, other) = (self.shape(), other.shape());
            return Err(Error::part(
                ErrorKind::Shape,
                format_args!("expected views of one shape, found {shape:?} and {other:?}"),
            ));
        }
        Ok(Zip { a: self.iter(), b: other.iter() })
    }

    /// The elements with their indices, in row-major order.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([0, 7, 0, 0]).reshape([2, 2])?;
    /// let view = tensor.view::<i32>()?;
    /// let found = view.indexed::<2>()?.find(|&(_, value)| value == 7);
    /// assert_eq!(found, Some(([0, 1], 7)));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch) if there are more or fewer axes than `N`.
    pub fn indexed<const N: usize>(&self) -> Result<Indexed<'a, T, N>, Error> {
        let shape = <[i64; N]>::try_from(self.shape());
        let shape = shape.map_err(|_| Error::ndim(N, self.shape().len()))?;
        Ok(Indexed { shape, index: [0; N], elements: self.iter() })
    }

    /// Folds the elements in `N` lanes, beginning with `init` in each: lane `i` has the elements `i`, `i + N`, `i + 2 * N`, ...
    /// in row-major order.
    ///
    /// `iter().sum()` adds floats in order, so that each addition waits for the one before it. Lanes do not wait for each
    /// other, and over contiguous elements they vectorise: sixteen sums of `f32` take less than a tenth of the time of one.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from(vec![0.5_f32; 20]);
    /// let sums: [f32; 16] = tensor.view::<f32>()?.fold_lanes(0.0, |sum, value| sum + value);
    /// assert_eq!(sums[3..5], [1.0, 0.5]);
    /// assert_eq!(sums.iter().sum::<f32>(), 10.0);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[inline]
    pub fn fold_lanes<B: Copy, const N: usize>(
        &self,
        init: B,
        mut fold: impl FnMut(B, T) -> B,
    ) -> [B; N] {
        const { assert!(N > 0, "one lane at least") };
        let mut lanes = [init; N];
        if let Some(cells) = self.as_cells() {
            let chunks = cells.chunks_exact(N);
            let rest = chunks.remainder();
            for cells in chunks {
                for (lane, cell) in lanes.iter_mut().zip(cells) {
                    *lane = fold(*lane, cell.get());
                }
            }
            for (lane, cell) in lanes.iter_mut().zip(rest) {
                *lane = fold(*lane, cell.get());
            }
            return lanes;
        }
        self.iter().fold(0, |at, value| {
            lanes[at] = fold(lanes[at], value);
            (at + 1) % N
        });
        lanes
    }

    fn extent(&self, axis: usize) -> Result<usize, Error> {
        let extent = self.shape().get(axis).map(|&extent| extent as usize);
        extent.ok_or_else(|| Error::axis(axis, self.shape().len()))
    }
}

impl<T: Element> ViewPart<'_, T> {
    /// The rows of the part; see [`View::rows`].
    #[must_use]
    #[inline]
    pub fn rows(&self) -> Rows<'_, T> {
        self.view().rows()
    }
}

/// Views of the inner axes of a [`View`], for each index of the outer axes, in row-major order; see
/// [`View::rows`] and [`View::outer_iter`].
///
/// A view costs a few instructions, for any strides.
#[derive(Clone, Debug)]
pub struct Rows<'a, T>(RowElements<'a, T>);

impl<'a, T: Element> Iterator for Rows<'a, T> {
    type Item = View<'a, T>;

    #[inline]
    fn next(&mut self) -> Option<View<'a, T>> {
        self.0.next().map(|elements| View { elements })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl<T: Element> ExactSizeIterator for Rows<'_, T> {}
impl<T: Element> FusedIterator for Rows<'_, T> {}

/// The parts of a [`View`] at each index of an axis; see [`View::axis_iter`].
#[derive(Clone, Debug)]
pub struct AxisIter<'a, T: Element> {
    view: View<'a, T>,
    axis: usize,
    indices: Range<usize>,
}

impl<'a, T: Element> AxisIter<'a, T> {
    fn part(&self, index: usize) -> ViewPart<'a, T> {
        self.view.select(self.axis, index).expect("an index of the axis")
    }
}

/// Pieces of a [`View`] along an axis; see [`View::chunks`] and [`View::windows`].
#[derive(Clone, Debug)]
pub struct Pieces<'a, T: Element> {
    view: View<'a, T>,
    axis: usize,
    size: usize,
    step: usize,
    numbers: Range<usize>,
}

impl<'a, T: Element> Pieces<'a, T> {
    fn part(&self, number: usize) -> ViewPart<'a, T> {
        let start = number * self.step;
        let extent = self.view.shape()[self.axis] as usize;
        let end = extent.min(start.saturating_add(self.size));
        self.view.slice(self.axis, start..end).expect("a range of the axis")
    }
}

macro_rules! numbered {
    ($name:ident, $numbers:ident) => {
        impl<'a, T: Element> Iterator for $name<'a, T> {
            type Item = ViewPart<'a, T>;

            fn next(&mut self) -> Option<ViewPart<'a, T>> {
                self.$numbers.next().map(|number| self.part(number))
            }

            fn nth(&mut self, skipped: usize) -> Option<ViewPart<'a, T>> {
                self.$numbers.nth(skipped).map(|number| self.part(number))
            }

            fn size_hint(&self) -> (usize, Option<usize>) {
                self.$numbers.size_hint()
            }
        }

        impl<'a, T: Element> DoubleEndedIterator for $name<'a, T> {
            fn next_back(&mut self) -> Option<ViewPart<'a, T>> {
                self.$numbers.next_back().map(|number| self.part(number))
            }
        }

        impl<T: Element> ExactSizeIterator for $name<'_, T> {}

        impl<T: Element> FusedIterator for $name<'_, T> {}
    };
}

numbered!(AxisIter, indices);
numbered!(Pieces, numbers);

/// The elements of two views of one shape, in pairs; see [`View::zip`].
#[derive(Clone, Debug)]
pub struct Zip<'a, 'b, T: Element, U: Element> {
    a: Iter<'a, T>,
    b: Iter<'b, U>,
}

impl<T: Element, U: Element> Iterator for Zip<'_, '_, T, U> {
    type Item = (T, U);

    #[inline]
    fn next(&mut self) -> Option<(T, U)> {
        Some((self.a.next()?, self.b.next()?))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.a.size_hint()
    }

    /// One loop over all elements, or one for each piece that is a run of both views.
    #[inline]
    fn fold<B, F: FnMut(B, (T, U)) -> B>(self, init: B, mut f: F) -> B {
        self.a.fold_pairs(self.b, init, |all, x, y| f(all, (x, y)))
    }
}

impl<T: Element, U: Element> ExactSizeIterator for Zip<'_, '_, T, U> {}

impl<T: Element, U: Element> FusedIterator for Zip<'_, '_, T, U> {}

/// The elements of a [`View`] with their indices; see [`View::indexed`].
#[derive(Clone, Debug)]
pub struct Indexed<'a, T, const N: usize> {
    shape: [i64; N],
    /// The index of the next element.
    index: [usize; N],
    elements: Iter<'a, T>,
}

impl<T: Element, const N: usize> Iterator for Indexed<'_, T, N> {
    type Item = ([usize; N], T);

    #[inline]
    fn next(&mut self) -> Option<([usize; N], T)> {
        let value = self.elements.next()?;
        let index = self.index;
        for axis in (0..N).rev() {
            self.index[axis] += 1;
            if self.index[axis] < self.shape[axis] as usize {
                break;
            }
            self.index[axis] = 0;
        }
        Some((index, value))
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.elements.size_hint()
    }
}

impl<T: Element, const N: usize> ExactSizeIterator for Indexed<'_, T, N> {}

impl<T: Element, const N: usize> FusedIterator for Indexed<'_, T, N> {}

// The compiler's message for a view that is indexed: `view[[i, j]]`.
// Invariant: no type implements `ByReference`, so that no view hands out a `&T`.

/// No type implements it: its message is what `view[[i, j]]` and `view.iter_mut()` show.
#[diagnostic::on_unimplemented(
    message = "the elements of a view are read and written by value, not by reference",
    label = "a view has no references to its elements",
    note = "read one by `view.get([i, j])`, write one by `view.set([i, j], value)?`",
    note = "all of them: `view.iter()`, `view.rows()`, `view.map_inplace(...)`, `view.zip_inplace(...)`",
    note = "a part: `view.slice(axis, start..end)?`, by the trait `dlbridge::Parts`"
)]
pub trait ByReference {
    /// Is never called.
    fn never(&self) -> !;
}

impl<T: Element> ViewMut<'_, T> {
    /// Does not compile, because a view gives no references to its elements: use [`map_inplace`](Self::map_inplace). The
    /// compiler's message says so.
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, T>
    where
        Self: ByReference,
    {
        self.never()
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> Index<I> for View<'_, T>
where
    Self: ByReference,
{
    type Output = T;

    fn index(&self, _: I) -> &T {
        self.never()
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> Index<I> for ViewMut<'_, T>
where
    Self: ByReference,
{
    type Output = T;

    fn index(&self, _: I) -> &T {
        self.never()
    }
}

#[doc(hidden)]
#[diagnostic::do_not_recommend]
impl<T, I> IndexMut<I> for ViewMut<'_, T>
where
    Self: ByReference,
{
    fn index_mut(&mut self, _: I) -> &mut T {
        self.never()
    }
}
