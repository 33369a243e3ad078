//! The methods that make a part of a tensor, for every type but `View`, which documents them.
//! Invariant: a part borrows no longer, and has no stronger class, than the tensor that it is made from.

use std::ops::{Bound, RangeBounds};

use crate::layout::Cut;
use crate::{ArcTensor, Error, Tensor, TensorMut, TensorRef, ViewMut};

/// A range of an axis.
pub(super) fn range_of(axis: usize, range: &impl RangeBounds<usize>) -> Cut<'static> {
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

/// The methods of a type that has a function `part`, by value or by reference.
macro_rules! verbs {
    ([$($receiver:tt)+] $this:ident -> $part:ty) => {
        /// The elements at one index of an axis; the part lacks that axis; see
        /// [`View::select`](crate::View::select).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis or index.
        pub fn select($($receiver)+, axis: usize, index: usize) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Select { axis, index })
        }

        /// The elements in a range of an axis; see [`View::slice`](crate::View::slice).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis, or the range does not lie within it.
        pub fn slice(
            $($receiver)+,
            axis: usize,
            range: impl std::ops::RangeBounds<usize>,
        ) -> Result<$part, $crate::Error> {
            $this.part($crate::tensor::part_verbs::range_of(axis, &range))
        }

        /// Every `step`-th element of an axis, backwards if the step is negative; see
        /// [`View::step_by`](crate::View::step_by).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis, or the step is 0.
        pub fn step_by($($receiver)+, axis: usize, step: isize) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Step { axis, step })
        }

        /// The elements of an axis in reverse; see [`View::flip`](crate::View::flip).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis.
        pub fn flip($($receiver)+, axis: usize) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Step { axis, step: -1 })
        }

        /// The axes in reverse; see [`View::transpose`](crate::View::transpose).
        #[must_use]
        pub fn transpose($($receiver)+) -> $part {
            $this.part($crate::layout::Cut::Transpose).expect("the same elements in another order")
        }

        /// The axes in another order; see [`View::permute`](crate::View::permute).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) unless each axis is named once.
        pub fn permute($($receiver)+, axes: &[usize]) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Permute(axes))
        }

        /// Removes an axis of extent 1; see [`View::squeeze`](crate::View::squeeze).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis, or it has another extent.
        pub fn squeeze($($receiver)+, axis: usize) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Squeeze { axis })
        }

        /// Inserts an axis of extent 1; see [`View::unsqueeze`](crate::View::unsqueeze).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if the axis is above the rank.
        pub fn unsqueeze($($receiver)+, axis: usize) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Unsqueeze { axis })
        }

        /// The same elements in row-major order, with other extents; see
        /// [`View::reshape`](crate::View::reshape).
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if the shape has another number of elements, or the elements
        /// would have to be copied.
        pub fn reshape($($receiver)+, shape: &[i64]) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Reshape(shape))
        }
    };
}

/// Repeating elements, for types whose memory is not written through a part.
macro_rules! broadcast {
    ([$($receiver:tt)+] $this:ident -> $part:ty) => {
        /// Repeats the elements to a larger shape; see
        /// [`View::broadcast_to`](crate::View::broadcast_to). The part is read-only.
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if the shape does not fit, or
        /// [`SizeOverflow`](crate::DescriptorError::SizeOverflow).
        pub fn broadcast_to($($receiver)+, shape: &[i64]) -> Result<$part, $crate::Error> {
            $this.part($crate::layout::Cut::Broadcast(shape))
        }
    };
}

/// Splitting in two, for types whose parts may be borrowed at the same time.
macro_rules! split {
    (& $this:ident -> $part:ty) => {
        /// The elements of an axis before an index, and those from the index on.
        ///
        /// # Errors
        ///
        /// [`Part`](crate::Error::Part) if there is no such axis, or it is shorter.
        pub fn split_at(
            &$this,
            axis: usize,
            index: usize,
        ) -> Result<($part, $part), $crate::Error> {
            Ok(($this.slice(axis, ..index)?, $this.slice(axis, index..)?))
        }
    };
}

pub(super) use {broadcast, split, verbs};

/// # Parts
///
/// The same memory under other indices, without a copy. These methods take the tensor: the part keeps its
/// memory alive and has its [class](crate::Access). An error drops the tensor.
/// [`as_tensor_ref`](Tensor::as_tensor_ref) gives parts that only borrow,
/// [`into_shared`](Tensor::into_shared) any number that own.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1, 2, 3, 4, 5, 6]).reshape(&[2, 3])?;
/// let mut row = tensor.select(0, 1)?;
/// row.as_slice_mut::<i32>()?[0] = 40;
/// assert_eq!(row.as_slice::<i32>()?, [40, 5, 6]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl Tensor {
    verbs!([self] self -> Self);
    broadcast!([self] self -> Self);

    fn part(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.0.into_part(cut).map(Self)
    }
}

/// # Parts
///
/// Each part keeps the memory alive, like another handle.
///
/// ```
/// use dlbridge::Tensor;
///
/// let image = Tensor::from(vec![1_u8, 2, 3, 4]).reshape(&[2, 2])?.into_shared();
/// let column = image.select(1, 0)?;
/// drop(image);
/// assert_eq!(column.view::<u8>()?.to_vec(), [1, 3]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl ArcTensor {
    verbs!([&self] self -> Self);
    broadcast!([&self] self -> Self);
    split!(&self -> Self);
}

/// # Parts
///
/// A part has the lifetime of the borrowed memory.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from([1.0_f32, 2.0, 3.0, 4.0]);
/// let (front, back) = tensor.as_tensor_ref().split_at(0, 1)?;
/// assert_eq!(front.as_slice::<f32>()?, [1.0]);
/// assert_eq!(back.as_slice::<f32>()?, [2.0, 3.0, 4.0]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<'a> TensorRef<'a> {
    verbs!([&self] self -> TensorRef<'a>);
    broadcast!([&self] self -> TensorRef<'a>);
    split!(&self -> TensorRef<'a>);

    fn part(&self, cut: Cut<'_>) -> Result<Self, Error> {
        self.borrowed().part(cut).map(Self::from_borrowed)
    }
}

/// # Parts
///
/// These methods take the borrow, so that no element is borrowed twice.
impl<'a> TensorMut<'a> {
    verbs!([self] self -> TensorMut<'a>);

    /// The elements of an axis before an index, and those from the index on, to write both.
    ///
    /// ```
    /// use dlbridge::TensorMut;
    ///
    /// let mut numbers = [1, 2, 3];
    /// let (mut front, mut back) = TensorMut::from(&mut numbers[..]).split_at(0, 1)?;
    /// front.as_slice_mut::<i32>()?.copy_from_slice(&back.as_slice::<i32>()?[..1]);
    /// back.as_slice_mut::<i32>()?.fill(0);
    /// assert_eq!(numbers, [2, 0, 0]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if there is no such axis, or it is shorter;
    /// [`Overlapping`](Error::Overlapping) or [`SubByte`](Error::SubByte) if both could reach one
    /// byte.
    pub fn split_at(self, axis: usize, index: usize) -> Result<(Self, Self), Error> {
        let (front, back) = self.0.split(axis, index)?;
        Ok((Self(front), Self(back)))
    }

    fn part(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.0.part(cut).map(Self)
    }
}

/// # Parts
///
/// These methods take the view, so that no element has two mutable views;
/// [`reborrow`](ViewMut::reborrow) keeps it for later.
///
/// ```
/// use dlbridge::Tensor;
///
/// let mut tensor = Tensor::from(vec![0; 6]).reshape(&[2, 3])?;
/// let mut view = tensor.view_mut::<i32>()?;
/// view.reborrow().select(1, 2)?.fill(7);
/// view.select(0, 0)?.slice(0, 1..)?.fill(5);
/// assert_eq!(tensor.as_slice::<i32>()?, [0, 5, 5, 0, 0, 7]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
impl<T: crate::Element> ViewMut<'_, T> {
    verbs!([self] self -> Self);

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
    /// # use dlbridge::Tensor;
    /// let mut tensor = Tensor::from([1, 2, 3]);
    /// let mut view = tensor.view_mut::<i32>()?;
    /// let mut front = view.reborrow().slice(0, ..2)?;
    /// view.reborrow().fill(0); // while `front` is used below
    /// front.fill(1);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        ViewMut::from_elements(self.elements_mut().reborrow())
    }

    fn part(self, cut: Cut<'_>) -> Result<Self, Error> {
        self.into_elements().into_part(cut).map(Self::from_elements)
    }
}
