//! Parts of a `View`, with an example for each method, and `ViewPart`, a view with a shape of its own.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use super::part_verbs::{broadcast, range_of, split, verbs};
use crate::layout::Cut;
use crate::raw::borrowed::Borrowed;
use crate::raw::elements::Elements;
use crate::raw::{Iter, ReadCell};
use crate::{Element, Error, View};

/// # Parts
///
/// The same elements under other indices, without a copy. A tensor has the same methods, for any
/// element type and any device.
impl<'a, T: Element> View<'a, T> {
    /// The elements at one index of an axis; the part lacks that axis.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape(&[2, 3])?;
    /// let column = tensor.view::<i32>()?.select(1, 2)?;
    /// assert_eq!(column.to_vec(), [3, 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis or index.
    pub fn select(&self, axis: usize, index: usize) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Select { axis, index })
    }

    /// The elements in a range of an axis.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3, 4]);
    /// let view = tensor.view::<i32>()?;
    /// assert_eq!(view.slice(0, 1..)?.to_vec(), [2, 3, 4]);
    /// // [1:4][::-2] in Python
    /// assert_eq!(view.slice(0, 1..4)?.step_by(0, -2)?.to_vec(), [4, 2]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or the range does not lie within it.
    pub fn slice(
        &self,
        axis: usize,
        range: impl RangeBounds<usize>,
    ) -> Result<ViewPart<'a, T>, Error> {
        self.part(range_of(axis, &range))
    }

    /// Every `step`-th element of an axis: from the first one on, or from the last one backwards if the
    /// step is negative. `[::step]` in Python.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3, 4, 5, 6]);
    /// let view = tensor.view::<i32>()?;
    /// assert_eq!(view.step_by(0, 4)?.to_vec(), [1, 5]);
    /// assert_eq!(view.step_by(0, -4)?.to_vec(), [6, 2]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or the step is 0.
    pub fn step_by(&self, axis: usize, step: isize) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Step { axis, step })
    }

    /// The elements of an axis in reverse.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3]);
    /// assert_eq!(tensor.view::<i32>()?.flip(0)?.to_vec(), [3, 2, 1]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis.
    pub fn flip(&self, axis: usize) -> Result<ViewPart<'a, T>, Error> {
        self.step_by(axis, -1)
    }

    /// The axes in reverse: the transposed matrix.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape(&[2, 3])?;
    /// let transposed = tensor.view::<i32>()?.transpose();
    /// assert_eq!(transposed.shape(), [3, 2]);
    /// assert_eq!(transposed.to_vec(), [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn transpose(&self) -> ViewPart<'a, T> {
        self.reversed()
    }

    /// The axes in another order: axis `i` of the part is axis `axes[i]` of this.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// // height, width, channels to channels, height, width
    /// let image = Tensor::from(vec![0_u8; 24]).reshape(&[2, 4, 3])?;
    /// assert_eq!(image.view::<u8>()?.permute(&[2, 0, 1])?.shape(), [3, 2, 4]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) unless each axis is named once.
    pub fn permute(&self, axes: &[usize]) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Permute(axes))
    }

    /// Removes an axis of extent 1.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3]).reshape(&[1, 3])?;
    /// assert_eq!(tensor.view::<i32>()?.squeeze(0)?.shape(), [3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it has another extent.
    pub fn squeeze(&self, axis: usize) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Squeeze { axis })
    }

    /// Inserts an axis of extent 1, at most after the last one. `numpy.expand_dims` in Python.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3]);
    /// assert_eq!(tensor.view::<i32>()?.unsqueeze(1)?.shape(), [3, 1]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the axis is above the rank.
    pub fn unsqueeze(&self, axis: usize) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Unsqueeze { axis })
    }

    /// The same elements in row-major order, with other extents. One extent may be -1: it is
    /// computed from the others.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3, 4, 5, 6]);
    /// let matrix = tensor.view::<i32>()?.reshape(&[-1, 2])?;
    /// assert_eq!((matrix.shape(), matrix.get(&[1, 0])), (&[3, 2][..], Some(3)));
    /// // The transposed matrix has no such strides.
    /// assert!(matrix.transpose().reshape(&[6]).is_err());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shape has another number of elements, or the elements would have to
    /// be copied.
    pub fn reshape(&self, shape: &[i64]) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Reshape(shape))
    }

    /// Repeats the elements along axes of extent 1, and along new axes in front.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2]);
    /// let rows = tensor.view::<i32>()?.broadcast_to(&[3, 2])?;
    /// assert_eq!(rows.to_vec(), [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shape does not fit, or
    /// [`SizeOverflow`](crate::DescriptorError::SizeOverflow).
    pub fn broadcast_to(&self, shape: &[i64]) -> Result<ViewPart<'a, T>, Error> {
        self.part(Cut::Broadcast(shape))
    }

    /// The elements of an axis before an index, and those from the index on.
    ///
    /// ```
    /// # use dlbridge::Tensor;
    /// let tensor = Tensor::from([1, 2, 3]);
    /// let (front, back) = tensor.view::<i32>()?.split_at(0, 1)?;
    /// assert_eq!((front.to_vec(), back.to_vec()), (vec![1], vec![2, 3]));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it is shorter.
    pub fn split_at(
        &self,
        axis: usize,
        index: usize,
    ) -> Result<(ViewPart<'a, T>, ViewPart<'a, T>), Error> {
        Ok((self.slice(axis, ..index)?, self.slice(axis, index..)?))
    }

    fn reversed(&self) -> ViewPart<'a, T> {
        self.part(Cut::Transpose).expect("the same elements in another order")
    }

    fn part(&self, cut: Cut<'_>) -> Result<ViewPart<'a, T>, Error> {
        Borrowed::part_of(self.elements.checked(), cut).map(ViewPart::over)
    }
}

/// A part of a [`View`], which has a shape of its own.
///
/// [`view`](Self::view) gives the [`View`], with all its methods. The most frequent ones are here as
/// well, and those that make parts.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0, 4.0]).reshape(&[2, 2])?;
/// let part = tensor.view::<f32>()?.transpose().slice(0, 1..)?;
/// assert_eq!(part.iter().sum::<f32>(), 6.0);
/// assert_eq!(part.view().map(f64::from), [2.0, 4.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// It borrows the tensor's memory, as the view does:
///
/// ```compile_fail,E0505
/// # use dlbridge::Tensor;
/// let tensor = Tensor::from([1, 2, 3]);
/// let part = tensor.view::<i32>()?.slice(0, 1..)?;
/// drop(tensor);
/// part.to_vec();
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct ViewPart<'a, T> {
    described: Borrowed<'a>,
    elements: PhantomData<&'a [ReadCell<T>]>,
}

impl<'a, T: Element> ViewPart<'a, T> {
    verbs!([&self] self -> ViewPart<'a, T>);
    broadcast!([&self] self -> ViewPart<'a, T>);
    split!(&self -> ViewPart<'a, T>);

    fn over(described: Borrowed<'a>) -> Self {
        Self { described, elements: PhantomData }
    }

    fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        self.described.part(cut).map(Self::over)
    }

    /// The part as a view, for as long as this is borrowed.
    #[must_use]
    #[inline]
    pub fn view(&self) -> View<'_, T> {
        View { elements: Elements::of_checked(self.described.checked()) }
    }

    /// The extents, outermost axis first.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.described.checked().shape()
    }

    /// The steps along each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        self.described.checked().strides()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index, or `None` if the index has another rank or lies outside.
    #[must_use]
    #[inline]
    pub fn get(&self, index: &[usize]) -> Option<T> {
        self.view().get(index)
    }

    /// The elements in row-major order.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> Iter<'_, T> {
        self.view().iter()
    }

    /// A copy of the elements in row-major order; see [`View::to_vec`].
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.view().to_vec()
    }
}

impl<'a, T: Element> IntoIterator for &'a ViewPart<'_, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Element> fmt::Debug for ViewPart<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}
