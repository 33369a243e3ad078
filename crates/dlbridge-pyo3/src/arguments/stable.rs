//! Slices and arrays over the caller's memory, for extensions that promise that it does not change
//! during a call.
//! Invariant: a reference to the caller's elements exists only while its argument borrows them.

use std::marker::PhantomData;

use dlbridge::{Element, Plain, Tensor, TensorMut, TensorRef};

use super::typed::{Constraint, PyTensorOf};
use crate::{Promised, Result, StableArguments};

impl<P: StableArguments> Constraint for P {
    fn is_met(_: &Tensor) -> bool {
        true
    }

    fn name(_: &mut String) {}
}

/// # References to the caller's memory
///
/// For arguments with a [`StableArguments`] marker.
impl<T: Element, const N: usize, C: Constraint + Promised> PyTensorOf<T, N, C> {
    /// The elements as a slice, without a copy.
    ///
    /// # Errors
    ///
    /// A `BufferError` if they are not contiguous or not aligned; the constraint
    /// [`Contiguous`](crate::Contiguous) refuses such arrays as an argument.
    pub fn as_slice(&self) -> Result<&[T]>
    where
        T: Plain,
    {
        Ok(self.memory.frozen(PhantomData::<C>).into_as()?)
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
    pub fn as_array<'a, V>(&'a self) -> Result<V>
    where
        V: TryFrom<TensorRef<'a>, Error = dlbridge::Error>,
    {
        Ok(self.memory.frozen(PhantomData::<C>).into_as()?)
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
    {
        const { assert!(C::WRITABLE, "as_slice_mut needs the constraint `Writable`") };
        Ok(self.memory.exclusive(PhantomData::<C>)?.into_as()?)
    }

    /// The elements as a mutable array of another crate. Does not compile without the constraint
    /// [`Writable`](crate::Writable).
    ///
    /// # Errors
    ///
    /// As [`as_array`](Self::as_array), and for elements that overlap.
    pub fn as_array_mut<'a, V>(&'a mut self) -> Result<V>
    where
        V: TryFrom<TensorMut<'a>, Error = dlbridge::Error>,
    {
        const { assert!(C::WRITABLE, "as_array_mut needs the constraint `Writable`") };
        Ok(self.memory.exclusive(PhantomData::<C>)?.into_as()?)
    }
}

impl<const N: usize, C: Constraint + Promised> PyTensorOf<bool, N, C> {
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
    pub fn as_bools(&self) -> Result<&[bool]> {
        self.memory.bools(PhantomData::<C>)
    }
}
