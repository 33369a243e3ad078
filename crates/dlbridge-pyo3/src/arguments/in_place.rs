//! `PyViewMut`, a view to write the memory of a Python array through.
//! Checking the array belongs to `typed`.
//! Invariant: the view never leaves the attached thread, and neither does what it gives.
#![allow(unsafe_code, reason = "it decides where the memory may be written")]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use dlbridge::{Element, Tensor, View, ViewMut};
use pyo3::prelude::*;

use crate::Result;

/// A typed view to write the caller's array in place, from [`PyTensorOf::view_mut`].
///
/// Elements are read and written by value, so that other code of this thread may use the array
/// between two calls. The view is bound to the attached thread, which keeps Python code on other
/// threads away. On a free-threaded build the Python program has to do so, as for
/// the in-place operations of any framework (`SAFETY.md`, T6).
///
/// It is neither sent to another thread nor used without the interpreter:
///
/// ```compile_fail,E0277
/// # use dlbridge_pyo3::PyTensorMut;
/// # use pyo3::prelude::*;
/// fn zero(py: Python<'_>, mut x: PyTensorMut<f32>) {
///     let mut view = x.view_mut(py);
///     py.detach(|| view.fill(0.0));
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use dlbridge_pyo3::PyTensorMut;
/// # use pyo3::prelude::*;
/// fn zero(py: Python<'_>, mut x: PyTensorMut<f32>) {
///     let mut view = x.view_mut(py);
///     std::thread::scope(|scope| {
///         scope.spawn(|| view.fill(0.0));
///     });
/// }
/// ```
///
/// A tensor has one view at a time, and none while a slice is borrowed from it:
///
/// ```compile_fail,E0499
/// # use dlbridge_pyo3::PyTensorMut;
/// # use pyo3::prelude::*;
/// fn zero(py: Python<'_>, mut x: PyTensorMut<f32>) {
///     let mut view = x.view_mut(py);
///     x.view_mut(py).fill(1.0);
///     view.fill(0.0);
/// }
/// ```
///
/// ```compile_fail,E0502
/// # use dlbridge_pyo3::PyTensorMut;
/// # use pyo3::prelude::*;
/// fn zero(py: Python<'_>, mut x: PyTensorMut<f32>) {
///     let slice = x.as_slice::<f32>();
///     x.view_mut(py).fill(0.0);
///     println!("{slice:?}");
/// }
/// ```
///
/// [`PyTensorOf::view_mut`]: crate::PyTensorOf::view_mut
pub struct PyViewMut<'a, T> {
    view: ViewMut<'a, T>,
    attached: PhantomData<Python<'a>>,
}

/// Verbs that make a part of the view; it takes the view's place.
macro_rules! parts {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("As [`ViewMut::", stringify!($name), "`].")]
        ///
        /// # Errors
        ///
        /// As there.
        pub fn $name(self, $($argument: $type),*) -> Result<Self> {
            Ok(Self::new(self.view.$name($($argument),*)?))
        }
    )*};
}

impl<'a, T: Element> PyViewMut<'a, T> {
    /// A view of a tensor that nobody else borrows.
    pub(crate) fn of(tensor: &'a mut Tensor, _: Python<'a>) -> Result<Self> {
        // SAFETY: the tensor is borrowed mutably, so no reference to its elements comes from it, and
        // other code with the memory accesses it on this thread, or is kept away (T6, T8): the view
        // stays on the attached thread.
        let view = unsafe { tensor.view_mut_unchecked() }?;
        Ok(Self::new(view))
    }

    fn new(view: ViewMut<'a, T>) -> Self {
        Self { view, attached: PhantomData }
    }

    /// The extents, outermost axis first.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        self.view.shape()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.view.is_empty()
    }

    /// The element at an index, or `None` if the index has another rank or is out of bounds.
    #[must_use]
    pub fn get(&self, index: &[usize]) -> Option<T> {
        self.view.get(index)
    }

    /// The same elements, to read.
    #[must_use]
    pub fn as_view(&self) -> View<'_, T> {
        self.view.as_view()
    }

    /// Writes the element at an index.
    ///
    /// # Errors
    ///
    /// As [`ViewMut::set`].
    pub fn set(&mut self, index: &[usize], value: T) -> Result<()> {
        Ok(self.view.set(index, value)?)
    }

    /// Writes `value` to every element.
    pub fn fill(&mut self, value: T) {
        self.view.fill(value);
    }

    /// Replaces each element by the result of `function`, in no particular order.
    pub fn map_inplace(&mut self, function: impl FnMut(T) -> T) {
        self.view.map_inplace(function);
    }

    /// Copies a slice of the same length to the elements, in row-major order.
    ///
    /// # Errors
    ///
    /// As [`ViewMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        Ok(self.view.copy_from_slice(source)?)
    }

    /// Calls `function` with each row, the elements along the last axis, in row-major order.
    pub fn for_each_row(&mut self, mut function: impl FnMut(PyViewMut<'_, T>)) {
        self.view.for_each_row(|row| function(PyViewMut::new(row)));
    }

    /// The same view for a shorter time, after which this one can be used again.
    #[must_use]
    pub fn reborrow(&mut self) -> PyViewMut<'_, T> {
        PyViewMut::new(self.view.reborrow())
    }

    parts! {
        select(axis: usize, index: usize);
        slice(axis: usize, range: impl RangeBounds<usize>);
        step_by(axis: usize, step: isize);
        flip(axis: usize);
        permute(axes: &[usize]);
        squeeze(axis: usize);
        unsqueeze(axis: usize);
        reshape(shape: &[i64]);
    }

    /// The axes in reverse.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self::new(self.view.transpose())
    }

    /// The elements of an axis in front of an index, and those from it on, to write both.
    ///
    /// # Errors
    ///
    /// As [`ViewMut::split_at`].
    pub fn split_at(self, axis: usize, index: usize) -> Result<(Self, Self)> {
        let (front, back) = self.view.split_at(axis, index)?;
        Ok((Self::new(front), Self::new(back)))
    }
}

impl<T: Element> fmt::Debug for PyViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PyViewMut").field(&self.view).finish()
    }
}
