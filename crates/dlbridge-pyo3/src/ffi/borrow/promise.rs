//! What an extension promises of its callers, so that it has references to their memory.

/// A marker by which an extension promises, once for all its functions, that its callers leave the
/// arguments alone during a call. An argument with such a marker gives slices and arrays of the
/// caller's memory: [`as_slice`](crate::PyTensorOf::as_slice), [`as_array`](crate::PyTensorOf::as_array) and their
/// `_mut` forms.
///
/// Dlbridge itself ensures that no Rust code writes the memory, by borrows that are counted at run time:
/// the same memory as two arguments, one of them to write, is a `TypeError`. It cannot see a thread of
/// Python that writes a NumPy array meanwhile. A `&[T]` requires that no code does, so the author of the
/// extension says so, in the one `unsafe` line of the project, and in its documentation:
///
/// ```
/// use dlbridge_pyo3::{PyTensorOf, Result, StableArguments, Writable};
/// use pyo3::prelude::*;
///
/// struct Stable;
///
/// // SAFETY: the README tells callers not to write an argument on another thread during a call.
/// unsafe impl StableArguments for Stable {}
///
/// type Array<T, const N: usize> = PyTensorOf<T, N, Stable>;
/// type ArrayMut<T, const N: usize> = PyTensorOf<T, N, (Stable, Writable)>;
///
/// #[pyfunction]
/// fn median(x: Array<f64, 1>) -> Result<f64> {
///     let mut sorted = x.as_slice()?.to_vec();
///     sorted.sort_by(f64::total_cmp);
///     Ok(sorted[sorted.len() / 2])
/// }
///
/// #[pyfunction]
/// fn sort(mut x: ArrayMut<f64, 1>) -> Result<()> {
///     x.as_slice_mut()?.sort_by(f64::total_cmp);
///     Ok(())
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// let x = py.import("numpy")?.call_method1("array", ([3.0, 1.0, 2.0],))?;
/// assert_eq!(wrap_pyfunction!(median, py)?.call1((&x,))?.extract::<f64>()?, 2.0);
/// wrap_pyfunction!(sort, py)?.call1((&x,))?;
/// assert_eq!(x.repr()?.to_string(), "array([1., 2., 3.])");
/// # Ok(()) }).unwrap();
/// ```
///
/// Without the marker, those methods do not compile:
///
/// ```compile_fail,E0277
/// # use dlbridge_pyo3::{PyTensorOf, Result};
/// fn median(x: PyTensorOf<f64, 1>) -> Result<usize> {
///     Ok(x.as_slice()?.len())
/// }
/// ```
///
/// # Safety
///
/// From the moment an argument with the marker is extracted until it is dropped, no code outside
/// Rust writes its elements; nor reads them, if the argument is [`Writable`](crate::Writable). That
/// includes threads of Python while the function is [detached](pyo3::Python::detach), or on a
/// free-threaded build; operations that a framework still runs; Python code that the function
/// itself calls; and consumers of the same memory that write in spite of a flag.
pub unsafe trait StableArguments: 'static {}

/// Constraints with a [`StableArguments`] marker: the marker itself, or a tuple that begins with it.
///
/// # Safety
///
/// That of [`StableArguments`].
#[diagnostic::on_unimplemented(
    message = "`&[T]` over the caller's memory needs a promise that it does not change during a call",
    label = "the argument has no `StableArguments` marker",
    note = "say it once in the crate: `struct Stable; unsafe impl dlbridge_pyo3::StableArguments for Stable {{}}`, \
            and take `PyTensorOf<T, N, Stable>`, or `PyTensorOf<T, N, (Stable, Writable)>` to write",
    note = "without a promise, `view()` reads and writes by value, at the speed of a slice"
)]
pub unsafe trait Promised {}

// SAFETY: the duty of `StableArguments`, which is the same.
unsafe impl<P: StableArguments> Promised for P {}
// SAFETY: the same duty, of the first marker.
unsafe impl<P: StableArguments, A> Promised for (P, A) {}
// SAFETY: the same duty.
unsafe impl<P: StableArguments, A, B> Promised for (P, A, B) {}
