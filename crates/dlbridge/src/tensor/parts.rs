//! `Parts`: the methods that make a part of a tensor, of a borrowed tensor or of a view.
//! Invariant: a part borrows no longer, and has no stronger class, than the tensor that it is made from.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use crate::layout::{Cut, Place};
use crate::memory::descriptor::Borrowed;
use crate::memory::read::Elements;
use crate::memory::{Iter, ReadCell};
use crate::{ArcTensor, Element, Error, Shape, Tensor, TensorMut, TensorRef, View, ViewMut};

/// The same elements under other indices, without a copy, for any element type and any device.
///
/// The methods are the same for every type, so that code which cuts a tensor can cut a view. The type says
/// what a part owns, and so whether a method takes the value or borrows it:
///
/// | part of | is | the method |
/// | --- | --- | --- |
/// | [`Tensor`] | a `Tensor` of its [class](crate::Access), which keeps the memory alive | takes the tensor, because there must be one handle to exclusive memory; an error drops it |
/// | [`ArcTensor`] | an `ArcTensor`, another handle | borrows |
/// | [`TensorRef`] | a `TensorRef` with the lifetime of the memory | borrows |
/// | [`View`], [`ViewPart`] | a `ViewPart` with the lifetime of the memory | borrows |
/// | [`TensorMut`], [`ViewMut`] | a part to write | takes it, so that no element is borrowed twice; see [`reborrow`](ViewMut::reborrow) |
///
/// [`Tensor::as_tensor_ref`] gives parts that only borrow, [`Tensor::into_shared`] any number of parts that own.
///
/// ```
/// use dlbridge::{Parts, Tensor};
///
/// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape([2, 3])?;
/// let mut row = tensor.select(0, 1)?;
/// row.as_slice_mut::<i32>()?[0] = 40;
/// assert_eq!(row.as_slice::<i32>()?, [40, 5, 6]);
///
/// let shared = row.into_shared();
/// let (first, others) = shared.split_at(0, 1)?;
/// drop(shared);
/// assert_eq!(first.view::<i32>()?.to_vec(), [40]);
/// assert_eq!(others.view::<i32>()?.flip(0)?.to_vec(), [6, 5]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// Sealed: the types of this crate implement it.
pub trait Parts: Sized {
    /// A part of this type.
    type Part;

    /// All other methods call this one.
    #[doc(hidden)]
    fn cut(self, cut: Cut<'_>) -> Result<Self::Part, Error>;

    /// What Python's index selects. An ellipsis is as many whole axes as the other places leave.
    #[doc(hidden)]
    fn index(self, places: &[Place]) -> Result<Self::Part, Error> {
        self.cut(Cut::Index(places))
    }

    /// The elements at one index of an axis; the part lacks that axis.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape([2, 3])?;
    /// let column = tensor.view::<i32>()?.select(1, 2)?;
    /// assert_eq!(column.to_vec(), [3, 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis or index.
    fn select(self, axis: usize, index: usize) -> Result<Self::Part, Error> {
        self.cut(Cut::Select { axis, index })
    }

    /// The elements in a range of an axis.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
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
    fn slice(self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self::Part, Error> {
        self.cut(range_of(axis, &range))
    }

    /// Every `step`-th element of an axis: from the first one on, or from the last one backwards if the
    /// step is negative. `[::step]` in Python.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
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
    fn step_by(self, axis: usize, step: isize) -> Result<Self::Part, Error> {
        self.cut(Cut::Step { axis, step })
    }

    /// The elements of an axis in reverse.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3]);
    /// assert_eq!(tensor.view::<i32>()?.flip(0)?.to_vec(), [3, 2, 1]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis.
    fn flip(self, axis: usize) -> Result<Self::Part, Error> {
        self.step_by(axis, -1)
    }

    /// The axes in reverse: the transposed matrix.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape([2, 3])?;
    /// let transposed = tensor.view::<i32>()?.transpose();
    /// assert_eq!(transposed.shape(), [3, 2]);
    /// assert_eq!(transposed.to_vec(), [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    fn transpose(self) -> Self::Part {
        self.cut(Cut::Transpose).expect("the same elements in another order")
    }

    /// The axes in another order: axis `i` of the part is axis `axes[i]` of this.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// // height, width, channels to channels, height, width
    /// let image = Tensor::from(vec![0_u8; 24]).reshape([2, 4, 3])?;
    /// assert_eq!(image.view::<u8>()?.permute(&[2, 0, 1])?.shape(), [3, 2, 4]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) unless each axis is named once.
    fn permute(self, axes: &[usize]) -> Result<Self::Part, Error> {
        self.cut(Cut::Permute(axes))
    }

    /// Removes an axis of extent 1.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3]).reshape([1, 3])?;
    /// assert_eq!(tensor.view::<i32>()?.squeeze(0)?.shape(), [3]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it has another extent.
    fn squeeze(self, axis: usize) -> Result<Self::Part, Error> {
        self.cut(Cut::Squeeze { axis })
    }

    /// Inserts an axis of extent 1, at most after the last one. `numpy.expand_dims` in Python.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3]);
    /// assert_eq!(tensor.view::<i32>()?.unsqueeze(1)?.shape(), [3, 1]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the axis is above the number of axes.
    fn unsqueeze(self, axis: usize) -> Result<Self::Part, Error> {
        self.cut(Cut::Unsqueeze { axis })
    }

    /// The same elements in row-major order, with other extents. One extent may be -1: it is
    /// computed from the others.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3, 4, 5, 6]);
    /// let matrix = tensor.view::<i32>()?.reshape([-1, 2])?;
    /// assert_eq!((matrix.shape(), matrix.get([1, 0])), (&[3, 2][..], Some(3)));
    /// // The transposed matrix has no such strides.
    /// assert!(matrix.transpose().reshape([6]).is_err());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shape has another number of elements or a negative extent, or the
    /// elements would have to be copied. [`Descriptor`](Error::Descriptor) if the shape of a tensor without
    /// elements has extents whose product overflows, or if there are more than
    /// [`MAX_NDIM`](crate::MAX_NDIM) axes.
    fn reshape(self, shape: impl Shape) -> Result<Self::Part, Error> {
        shape.with_extents(|shape| self.cut(Cut::Reshape(shape)))
    }

    /// Repeats the elements along axes of extent 1, and along new axes in front. The part is read-only,
    /// because one write would change several elements; so there is none of a [`ViewMut`]. A [`Tensor`]
    /// has a method that takes it.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2]);
    /// let rows = tensor.view::<i32>()?.broadcast_to([3, 2])?;
    /// assert_eq!(rows.to_vec(), [1, 2, 1, 2, 1, 2]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// ```compile_fail,E0277
    /// # use dlbridge::{Parts, Tensor};
    /// let mut tensor = Tensor::from([1, 2]);
    /// tensor.view_mut::<i32>()?.broadcast_to([3, 2])?.fill(0);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the shape does not fit, or
    /// [`SizeOverflow`](crate::DescriptorError::SizeOverflow).
    fn broadcast_to(self, shape: impl Shape) -> Result<Self::Part, Error>
    where
        Self: Copy,
    {
        shape.with_extents(|shape| self.cut(Cut::Broadcast(shape)))
    }

    /// The elements of an axis before an index, and those from the index on. [`TensorMut`] and [`ViewMut`]
    /// have a method of their own, because parts to write must not overlap.
    ///
    /// ```
    /// # use dlbridge::{Parts, Tensor};
    /// let tensor = Tensor::from([1, 2, 3]);
    /// let (front, back) = tensor.view::<i32>()?.split_at(0, 1)?;
    /// assert_eq!((front.to_vec(), back.to_vec()), (vec![1], vec![2, 3]));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it is shorter.
    fn split_at(self, axis: usize, index: usize) -> Result<(Self::Part, Self::Part), Error>
    where
        Self: Copy,
    {
        Ok((self.slice(axis, ..index)?, self.slice(axis, index..)?))
    }
}

/// A range of an axis.
fn range_of(axis: usize, range: &impl RangeBounds<usize>) -> Cut<'static> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        // No axis is so long that saturating makes a wrong index a right one.
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => Some(end.saturating_add(1)),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => None,
    };
    Cut::Slice { axis, start, end }
}

impl Parts for Tensor {
    type Part = Self;

    fn cut(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.0.into_part(cut).map(Self)
    }
}

impl Parts for &ArcTensor {
    type Part = ArcTensor;

    fn cut(self, cut: Cut<'_>) -> Result<ArcTensor, Error> {
        match cut {
            Cut::Select { axis: 0, index } | Cut::Index(&[Place::At(index)]) => self.row(index),
            _ => self.part(cut),
        }
    }
}

impl<'a> Parts for &TensorRef<'a> {
    type Part = TensorRef<'a>;

    fn cut(self, cut: Cut<'_>) -> Result<TensorRef<'a>, Error> {
        self.borrowed().part(cut).map(TensorRef::from_borrowed)
    }
}

impl Parts for TensorMut<'_> {
    type Part = Self;

    fn cut(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.0.part(cut).map(Self)
    }
}

impl<'a, T: Element> Parts for View<'a, T> {
    type Part = ViewPart<'a, T>;

    fn cut(self, cut: Cut<'_>) -> Result<ViewPart<'a, T>, Error> {
        Borrowed::part_of(self.elements.checked(), cut).map(ViewPart::over)
    }
}

impl<'a, T: Element> Parts for &ViewPart<'a, T> {
    type Part = ViewPart<'a, T>;

    fn cut(self, cut: Cut<'_>) -> Result<ViewPart<'a, T>, Error> {
        self.described().part(cut).map(ViewPart::over)
    }
}

impl<T: Element> Parts for ViewMut<'_, T> {
    type Part = Self;

    fn cut(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.into_elements().into_part(cut).map(Self::from_elements)
    }
}

impl Tensor {
    /// As [`Parts::broadcast_to`], but the part owns the memory. Memory of class
    /// [`Exclusive`](crate::Access::Exclusive) becomes [`Frozen`](crate::Access::Frozen).
    ///
    /// # Errors
    ///
    /// As for [`Parts::broadcast_to`]. The tensor is dropped then.
    pub fn broadcast_to(self, shape: impl Shape) -> Result<Self, Error> {
        shape.with_extents(|shape| self.cut(Cut::Broadcast(shape)))
    }
}

// `ViewPart`: a part of a `View`, with a shape of its own.

/// A part of a [`View`], which has a shape of its own.
///
/// Made by [`Parts`](crate::Parts), whose methods cut it again. [`view`](Self::view) gives the [`View`], with
/// all its methods; the most frequent ones are here as well.
///
/// ```
/// use dlbridge::{Parts, Tensor};
///
/// let tensor = Tensor::from(vec![1.0_f32, 2.0, 3.0, 4.0]).reshape([2, 2])?;
/// let part = tensor.view::<f32>()?.transpose().slice(0, 1..)?;
/// assert_eq!(part.iter().sum::<f32>(), 6.0);
/// assert_eq!(part.view().map(f64::from), [2.0, 4.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// It borrows the tensor's memory, as the view does:
///
/// ```compile_fail,E0505
/// # use dlbridge::{Parts, Tensor};
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
    pub(super) fn over(described: Borrowed<'a>) -> Self {
        Self { described, elements: PhantomData }
    }

    pub(super) fn described(&self) -> &Borrowed<'a> {
        &self.described
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

    /// The element at an index, or `None` if the index has another number of axes or lies outside.
    #[must_use]
    #[inline]
    pub fn get(&self, index: impl Shape) -> Option<T> {
        self.view().get(index)
    }

    /// The elements in row-major order.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> Iter<'_, T> {
        self.view().iter()
    }

    /// A copy of the elements in row-major order; see [`View::to_vec`].
    ///
    /// # Panics
    ///
    /// As for [`View::to_vec`].
    #[must_use]
    #[track_caller]
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
