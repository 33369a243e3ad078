//! `View` and `ViewMut`: host memory of one element type, read and written by value.
//! Invariant: a view has the right type and is on the host; it hands out no `&T`.

use std::fmt;

use crate::memory::read::Elements;
use crate::memory::write::ElementsMut;
use crate::memory::{Checked, Iter, ReadCell};
use crate::{Element, Error, ErrorKind, Shape, ShapeField, Tensor};

/// A typed view of host memory that copies elements out.
///
/// It is safe for memory that another language may write, and works for any strides and any address,
/// aligned or not.
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::builder(vec![1, 2, 3, 4, 5, 6]).shape([2, 3]).strides([1, 2]).build()?;
/// let view = tensor.view::<i32>()?;
/// assert_eq!(view.get([1, 0]), Some(2));
/// assert_eq!(view.to_vec(), [1, 3, 5, 2, 4, 6]);
/// assert_eq!(view.iter().sum::<i32>(), 21);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    pub(crate) elements: Elements<'a, T>,
}

impl<'a, T: Element> View<'a, T> {
    #[inline(always)]
    pub(crate) fn new(checked: Checked<'a>) -> Result<Self, Error> {
        Ok(Self { elements: Elements::new(checked)? })
    }

    #[inline(always)]
    pub(crate) fn from_elements(elements: Elements<'a, T>) -> Self {
        Self { elements }
    }

    /// The extents, outermost axis first.
    #[must_use]
    pub fn shape(&self) -> &'a [i64] {
        self.elements.checked().shape()
    }

    /// The steps along each axis, in elements.
    #[must_use]
    pub fn strides(&self) -> &'a [i64] {
        self.elements.checked().strides()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.checked().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements are contiguous in row-major order.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        self.elements.checked().is_contiguous()
    }

    /// The element at an index, or `None` if the index has another number of axes or lies outside.
    #[must_use]
    #[inline]
    pub fn get(&self, index: impl Shape) -> Option<T> {
        self.elements.get(&index)
    }

    /// The only element.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// assert_eq!(Tensor::scalar(2.5_f64).view::<f64>()?.item()?, 2.5);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch) if there are none or several.
    pub fn item(&self) -> Result<T, Error> {
        let mut elements = self.iter();
        match (elements.next(), elements.len()) {
            (Some(value), 0) => Ok(value),
            _ => Err(Error::ShapeMismatch {
                field: ShapeField::Length,
                expected: 1,
                found: self.len(),
            }),
        }
    }

    /// The elements in row-major order.
    #[must_use]
    #[inline]
    pub fn iter(&self) -> Iter<'a, T> {
        self.elements.iter()
    }

    /// The elements as cells, if they are contiguous in row-major order, and aligned. Loops over cells
    /// vectorise like loops over a slice.
    #[must_use]
    #[inline]
    pub fn as_cells(&self) -> Option<&'a [ReadCell<T>]> {
        self.elements.cells()
    }

    /// Applies `function` to the elements, in row-major order: `iter().map(function).collect()` at the
    /// speed of a slice.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let tensor = Tensor::from([1, 2, 3]);
    /// assert_eq!(tensor.view::<i32>()?.map(|x| f64::from(x) / 2.0), [0.5, 1.0, 1.5]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the vector cannot be allocated: a broadcast tensor can have more elements than fit in memory.
    /// [`map_to_tensor`](Self::map_to_tensor) returns an error in that case.
    #[must_use]
    #[inline]
    #[track_caller]
    pub fn map<U>(&self, function: impl FnMut(T) -> U) -> Vec<U> {
        allocated(self.elements.map(function))
    }

    /// A copy of the elements in row-major order.
    ///
    /// # Panics
    ///
    /// If the vector cannot be allocated: a broadcast tensor can have more elements than fit in memory.
    /// [`copy_as::<Vec<T>>`](Self::copy_as) returns an error in that case.
    #[must_use]
    #[track_caller]
    pub fn to_vec(&self) -> Vec<T> {
        allocated(self.elements.to_vec())
    }

    /// A copy of the elements as a `Vec`, or an owned type of another crate: `ndarray::Array`,
    /// `nalgebra::OMatrix`, `faer::Mat`, `image::ImageBuffer`.
    ///
    /// ```
    /// # #[cfg(feature = "ndarray-0_17")]
    /// # {
    /// use dlbridge::Tensor;
    /// use ndarray::Array1;
    ///
    /// let tensor = Tensor::from(vec![1.5_f32, 2.5]);
    /// assert_eq!(tensor.view::<f32>()?.copy_as::<Array1<f32>>()?.sum(), 4.0);
    /// # }
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An error that names the shape if the type cannot have it, or [`OutOfMemory`](Error::OutOfMemory).
    pub fn copy_as<A>(&self) -> Result<A, Error>
    where
        A: for<'t> TryFrom<&'t Self, Error = Error>,
    {
        A::try_from(self)
    }

    /// Copies the elements, in row-major order, to a slice of the same length.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch).
    pub fn copy_to_slice(&self, target: &mut [T]) -> Result<(), Error> {
        self.elements.copy_to_slice(target)
    }
}

/// The vector, or a panic in place of the end of the process.
#[inline]
#[track_caller]
fn allocated<T>(values: Result<Vec<T>, Error>) -> Vec<T> {
    values.unwrap_or_else(|error| panic!("{error}"))
}

impl<'a, T: Element> IntoIterator for View<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Element> IntoIterator for &View<'a, T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    #[inline]
    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T: Element> fmt::Debug for View<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("dtype", &format_args!("{}", T::DTYPE))
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .finish_non_exhaustive()
    }
}

/// A typed view of host memory to write through, with exclusive access.
///
/// Elements may overlap (a broadcast axis, say): they are written by value.
///
/// ```
/// use dlbridge::Tensor;
///
/// let mut tensor = Tensor::from(vec![1, 2, 3]);
/// let mut view = tensor.view_mut::<i32>()?;
/// view.set([0], 10)?;
/// view.map_inplace(|x| x + 1);
/// assert_eq!(tensor.as_slice::<i32>()?, [11, 3, 4]);
/// # Ok::<(), dlbridge::Error>(())
/// ```
pub struct ViewMut<'a, T>(ElementsMut<'a, T>);

impl<'a, T: Element> ViewMut<'a, T> {
    #[inline(always)]
    pub(crate) fn from_elements(elements: ElementsMut<'a, T>) -> Self {
        Self(elements)
    }

    pub(crate) fn into_elements(self) -> ElementsMut<'a, T> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn elements_mut(&mut self) -> &mut ElementsMut<'a, T> {
        &mut self.0
    }

    /// The extents, outermost axis first.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.0.elements().checked().shape()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.elements().checked().len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element at an index, or `None` if the index has another number of axes or lies outside.
    #[must_use]
    pub fn get(&self, index: impl Shape) -> Option<T> {
        self.0.elements().get(&index)
    }

    /// The same elements, for reading.
    #[must_use]
    pub fn as_view(&self) -> View<'_, T> {
        View { elements: self.0.elements() }
    }

    /// Iterates over the elements in row-major order.
    ///
    /// ```
    /// use dlbridge::Tensor;
    ///
    /// let mut tensor = Tensor::from([1.0, 3.0]);
    /// let mut view = tensor.view_mut::<f64>()?;
    /// let sum: f64 = view.iter().sum();
    /// view.map_inplace(|x| x / sum);
    /// assert_eq!(view.iter().collect::<Vec<_>>(), [0.25, 0.75]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        self.as_view().iter()
    }

    /// Calls `function` with each row, the elements along the last axis, in row-major order.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let mut tensor = Tensor::from([3.0, 1.0, 4.0, 4.0]).reshape([2, 2])?;
    /// tensor.view_mut::<f64>()?.for_each_row(|mut row| {
    ///     let sum: f64 = row.iter().sum();
    ///     row.map_inplace(|x| x / sum);
    /// });
    /// assert_eq!(tensor.as_slice::<f64>()?, [0.75, 0.25, 0.5, 0.5]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    pub fn for_each_row(&mut self, mut function: impl FnMut(ViewMut<'_, T>)) {
        self.0.for_each_row(|row| function(ViewMut(row)));
    }

    /// The rows, the elements along the last axis, in row-major order of the other axes.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let mut table = Tensor::from([1, 2, 3, 4]).reshape([2, 2])?;
    /// let factors = [10, 100];
    /// for (mut row, factor) in table.view_mut::<i32>()?.rows_mut()?.zip(factors) {
    ///     row.map_inplace(|x| x * factor);
    /// }
    /// assert_eq!(table.as_slice::<i32>()?, [10, 20, 300, 400]);
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// The view is borrowed while there are rows of it:
    ///
    /// ```compile_fail,E0499
    /// # use dlbridge::Tensor;
    /// # let mut tensor = Tensor::from([1, 2, 3]);
    /// let mut view = tensor.view_mut::<i32>()?;
    /// let rows = view.rows_mut()?;
    /// view.fill(1);
    /// rows.for_each(|mut row| row.fill(0));
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Overlapping`](Error::Overlapping) if two indices may reach one element; [`for_each_row`](Self::for_each_row)
    /// takes such views as well.
    pub fn rows_mut(&mut self) -> Result<impl ExactSizeIterator<Item = ViewMut<'_, T>>, Error> {
        Ok(self.0.rows()?.map(ViewMut))
    }

    /// Writes the element at an index.
    ///
    /// # Errors
    ///
    /// [`Part`](Error::Part) if the index has another number of axes or lies outside.
    pub fn set(&mut self, index: impl Shape, value: T) -> Result<(), Error> {
        self.0.set(&index, value).ok_or_else(|| {
            index.with_extents(|index| {
                let shape = self.shape();
                Error::part(
                    ErrorKind::Index,
                    format_args!("index: expected one inside the shape {shape:?}, found {index:?}"),
                )
            })
        })
    }

    /// Writes `value` to every element.
    pub fn fill(&mut self, value: T) {
        self.0.fill(value);
    }

    /// Replaces each element by `function` of it, in no particular order: that of the memory is the fastest.
    pub fn map_inplace(&mut self, function: impl FnMut(T) -> T) {
        self.0.replace_in_memory_order(function);
    }

    /// Copies a slice of the same length to the elements, in row-major order.
    ///
    /// # Errors
    ///
    /// [`ShapeMismatch`](Error::ShapeMismatch).
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<(), Error> {
        if source.len() != self.len() {
            return Err(Error::ShapeMismatch {
                field: ShapeField::Length,
                expected: self.len(),
                found: source.len(),
            });
        }
        self.0.copy_from_slice(source);
        Ok(())
    }
}

impl<'v, T: Element> IntoIterator for &'v ViewMut<'_, T> {
    type Item = T;
    type IntoIter = Iter<'v, T>;

    fn into_iter(self) -> Iter<'v, T> {
        self.iter()
    }
}

impl<T: Element> fmt::Debug for ViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewMut")
            .field("dtype", &format_args!("{}", T::DTYPE))
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}

// New tensors computed from views, in one pass.

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
        return Err(Error::ndim(expected.len(), found.len()));
    }
    match expected.iter().zip(found).position(|(expected, found)| expected != found) {
        None => Ok(()),
        Some(axis) => Err(Error::extent(axis, expected[axis] as usize, found[axis])),
    }
}
