//! `ViewPart`: a part of a `View`, with a shape of its own.

use std::fmt;
use std::marker::PhantomData;

use crate::raw::borrowed::Borrowed;
use crate::raw::elements::Elements;
use crate::raw::{Iter, ReadCell};
use crate::{Element, View};

/// A part of a [`View`], which has a shape of its own.
///
/// Made by [`Parts`](crate::Parts), whose methods cut it again. [`view`](Self::view) gives the [`View`], with
/// all its methods; the most frequent ones are here as well.
///
/// ```
/// use dlbridge::{Parts, Tensor};
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
