//! Slices and arrays over the caller's memory, for extensions that promise that it does not change
//! during a call.
//! Invariant: a reference to the caller's elements exists only while its argument borrows them.

use std::marker::PhantomData;

use dlbridge::{Element, Parts, Plain, TensorMut, TensorRef};

use super::{Constraint, Metadata, PyTensorOf, ToWrite};
use crate::{Error, Promised, Result, StableArguments};

impl<P: StableArguments> Constraint for P {
    fn is_met(_: Metadata<'_>) -> bool {
        true
    }

    fn name(_: &mut String) {}
}

/// A type that borrows elements to read, such as `ndarray::ArrayView`: every type with `TryFrom<TensorRef>`.
///
/// It is a trait of its own because the compiler's message about any other type then names the call that helps.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not borrow elements to read",
    note = "a view of another crate does with the feature of `dlbridge` for that crate's version, such as `ndarray-0_17`",
    note = "views to write are from `as_array_mut()`, arrays that own their elements from `copy_as()`"
)]
pub trait ArrayOf<'a>: Sized {
    /// Borrows the elements.
    ///
    /// # Errors
    ///
    /// Names the stride or the address that the type cannot have.
    fn of(elements: TensorRef<'a>) -> std::result::Result<Self, dlbridge::Error>;
}

#[diagnostic::do_not_recommend]
impl<'a, V: TryFrom<TensorRef<'a>, Error = dlbridge::Error>> ArrayOf<'a> for V {
    #[inline(always)]
    fn of(elements: TensorRef<'a>) -> std::result::Result<Self, dlbridge::Error> {
        elements.into_as()
    }
}

/// # References to the caller's memory
///
/// For arguments with a [`StableArguments`] marker.
// The bound `Promised` is one of each method: with one of the block, the compiler would call the tensor's `as_slice`,
// which refuses shared memory when it runs.
impl<T: Element, const N: usize, C: Constraint> PyTensorOf<T, N, C> {
    /// The elements as a slice, without a copy.
    ///
    /// # Errors
    ///
    /// A `BufferError` if they are not contiguous in row-major order or not aligned; the constraint
    /// [`Contiguous`](crate::Contiguous) refuses such arrays as an argument.
    pub fn as_slice(&self) -> Result<&[T]>
    where
        T: Plain,
        C: Promised,
    {
        self.memory.slice(PhantomData::<C>)
    }

    /// The elements as a slice, in the order in which they are in memory: row-major, or column-major for an array in
    /// Fortran's order. The constraint [`AnyContiguous`](crate::AnyContiguous) accepts both.
    ///
    /// ```
    /// use dlbridge_pyo3::{AnyContiguous, PyTensorOf, Result, StableArguments, Writable};
    /// use pyo3::prelude::*;
    ///
    /// struct Stable;
    ///
    /// // SAFETY: the README tells callers not to use an argument on another thread during a call.
    /// unsafe impl StableArguments for Stable {}
    ///
    /// /// Doubles a matrix in place, in either order: the position of an element does not matter.
    /// #[pyfunction]
    /// fn double(mut x: PyTensorOf<f64, 2, (Stable, AnyContiguous, Writable)>) -> Result<()> {
    ///     x.as_slice_memory_order_mut()?.iter_mut().for_each(|value| *value *= 2.0);
    ///     Ok(())
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// # let double = wrap_pyfunction!(double, py)?;
    /// let ones = py.import("numpy")?.call_method1("ones", ((2, 3),))?;
    /// double.call1((&ones,))?;
    /// double.call1((ones.getattr("T")?,))?;
    /// assert_eq!(ones.call_method0("sum")?.extract::<f64>()?, 24.0);
    /// # let columns = ones.get_item((pyo3::types::PyEllipsis::get(py), pyo3::types::PySlice::new(py, 0, 2, 1)))?;
    /// # let error = double.call1((columns,)).unwrap_err().to_string();
    /// # assert!(error.contains(", contiguous in either order, writable, found float64[2, 2]"), "{error}");
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// A `BufferError` if they are contiguous in neither order, or not aligned.
    pub fn as_slice_memory_order(&self) -> Result<&[T]>
    where
        T: Plain,
        C: Promised,
    {
        if !self.is_fortran() {
            return self.as_slice();
        }
        Ok(self.memory.frozen(PhantomData::<C>).transpose().into_as()?)
    }

    /// The elements as a mutable slice, in the order in which they are in memory; see
    /// [`as_slice_memory_order`](Self::as_slice_memory_order). Does not compile without the constraint
    /// [`Writable`](crate::Writable).
    ///
    /// # Errors
    ///
    /// As [`as_slice_memory_order`](Self::as_slice_memory_order).
    pub fn as_slice_memory_order_mut(&mut self) -> Result<&mut [T]>
    where
        T: Plain,
        C: Promised + ToWrite,
    {
        if !self.is_fortran() {
            return self.as_slice_mut();
        }
        let elements = self.memory_mut().exclusive(PhantomData::<C>)?.transpose();
        elements.into_as().map_err(Error::of_writing)
    }

    /// Whether the elements are contiguous in column-major order alone.
    fn is_fortran(&self) -> bool {
        let found = Metadata::of(self.memory.tensor());
        !found.is_contiguous() && found.is_column_major()
    }

    /// The elements as an array of another crate, without a copy: `ndarray::ArrayView`,
    /// `nalgebra::MatrixView`, `faer::MatRef`, whatever a [`TensorRef`] is converted to.
    ///
    /// ```
    /// use dlbridge_pyo3::{PyTensorOf, Result, StableArguments};
    /// use ndarray::ArrayView2;
    /// use pyo3::prelude::*;
    ///
    /// struct Stable;
    ///
    /// // SAFETY: the README tells callers not to write an argument on another thread during a call.
    /// unsafe impl StableArguments for Stable {}
    ///
    /// #[pyfunction]
    /// fn trace(x: PyTensorOf<f64, 2, Stable>) -> Result<f64> {
    ///     let matrix: ArrayView2<f64> = x.as_array()?;
    ///     Ok(matrix.diag().sum())
    /// }
    /// # Python::initialize();
    /// # Python::attach(|py| -> PyResult<()> {
    /// let identity = py.import("numpy")?.call_method1("identity", (3,))?;
    /// assert_eq!(wrap_pyfunction!(trace, py)?.call1((identity,))?.extract::<f64>()?, 3.0);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// A `BufferError` that names the stride or the address that the type cannot have.
    pub fn as_array<'a, V: ArrayOf<'a>>(&'a self) -> Result<V>
    where
        C: Promised,
    {
        Ok(V::of(self.memory.frozen(PhantomData::<C>))?)
    }

    /// The elements as a mutable slice. Does not compile without the constraint
    /// [`Writable`](crate::Writable).
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_slice_mut(&mut self) -> Result<&mut [T]>
    where
        T: Plain,
        C: Promised + ToWrite,
    {
        self.memory_mut().slice_mut(PhantomData::<C>)
    }

    /// The elements as a mutable array of another crate. Does not compile without the constraint
    /// [`Writable`](crate::Writable).
    ///
    /// # Errors
    ///
    /// As [`as_array`](Self::as_array).
    pub fn as_array_mut<'a, V>(&'a mut self) -> Result<V>
    where
        V: TryFrom<TensorMut<'a>, Error = dlbridge::Error>,
        C: Promised + ToWrite,
    {
        self.memory_mut().exclusive(PhantomData::<C>)?.into_as().map_err(Error::of_writing)
    }
}

impl<const N: usize, C: Constraint> PyTensorOf<bool, N, C> {
    /// The elements as a slice, without a copy, after a check that every byte is 0 or 1.
    ///
    /// ```
    /// # use dlbridge_pyo3::{PyTensorOf, StableArguments};
    /// # use pyo3::prelude::*;
    /// # struct Stable;
    /// # // SAFETY: no other thread.
    /// # unsafe impl StableArguments for Stable {}
    /// # Python::initialize();
    /// # Python::attach(|py| -> dlbridge_pyo3::Result<()> {
    /// let numpy = py.import("numpy")?;
    /// let bytes = numpy.call_method1("array", ([0, 1, 2], "uint8"))?;
    /// let mask: PyTensorOf<bool, 1, Stable> = bytes.call_method1("view", ("bool",))?.extract()?;
    /// assert!(mask.as_bools().unwrap_err().to_string().contains("found 2"));
    /// bytes.set_item(2, 1)?;
    /// assert_eq!(mask.as_bools()?, [false, true, true]);
    /// # Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// A `BufferError` if the elements are not contiguous, or a byte is neither 0 nor 1.
    pub fn as_bools(&self) -> Result<&[bool]>
    where
        C: Promised,
    {
        self.memory.bools(PhantomData::<C>)
    }

    /// The elements as a mutable slice, after the check of [`as_bools`](Self::as_bools). Does not compile without the
    /// constraint [`Writable`](crate::Writable).
    ///
    /// # Errors
    ///
    /// As [`as_bools`](Self::as_bools).
    pub fn as_bools_mut(&mut self) -> Result<&mut [bool]>
    where
        C: Promised + ToWrite,
    {
        self.memory_mut().bools_mut(PhantomData::<C>)
    }
}
