//! `PyTensorLike`, an argument that is an array or is converted to one.
//! Arrays that are used as they are belong to `typed`.
//! Invariant: host memory of `T`'s dtype, of ndim `N`.

use std::ops::Deref;

use dlbridge::{Element, Tensor, TypeCode};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyTuple};
use pyo3::{Borrowed, intern};

use crate::error::{Conversion, error_of, is_refusal, unless_refused};
use crate::ffi::borrow::Borrowed as BorrowedMemory;
use crate::import::import_argument;
use crate::interpreter::{Attributes, through_pyo3};
use crate::{ANY_NDIM, Error, PyDType, PyTensorOf, Result};

/// An argument that `numpy.asarray` accepts, with elements of type `T` and `N` axes: an array, a list,
/// a number.
///
/// An array of `T` in host memory is used as it is, like a [`PyTensorOf`]. An array of another dtype or device, and an
/// object without a protocol for arrays, is converted by NumPy, which copies it: another dtype only within its kind of
/// numbers (float64 to float32, but not floats to integers, which raises `TypeError`). Integers that do not
/// fit `T` raise `OverflowError`. What a [`PyTensor`](crate::PyTensor) refuses for another reason, such as masked
/// elements or nulls, is the same error here. The tensor is for reading: the caller would not see a write to a copy.
///
/// ```
/// use dlbridge_pyo3::PyTensorLike;
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn mean(x: PyTensorLike<f64, 1>) -> f64 {
///     x.view().iter().sum::<f64>() / x.len() as f64
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let mean = wrap_pyfunction!(mean, py)?;
/// assert_eq!(mean.call1((vec![1, 2, 6],))?.extract::<f64>()?, 3.0);
/// # let array = py.import("numpy")?.call_method1("ones", (2, "float32"))?;
/// # assert_eq!(mean.call1((array,))?.extract::<f64>()?, 1.0);
/// # Ok(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct PyTensorLike<T, const N: usize = ANY_NDIM>(PyTensorOf<T, N>);

impl<T: Element, const N: usize> PyTensorLike<T, N> {
    /// Returns the tensor: the caller's memory, or NumPy's copy.
    #[must_use]
    pub fn into_inner(self) -> Tensor {
        self.0.into_inner()
    }
}

impl<T, const N: usize> Deref for PyTensorLike<T, N> {
    type Target = PyTensorOf<T, N>;

    fn deref(&self) -> &PyTensorOf<T, N> {
        &self.0
    }
}

impl<'a, 'py, T: Element, const N: usize> FromPyObject<'a, 'py> for PyTensorLike<T, N> {
    type Error = Error;

    #[cfg(type_hints)]
    const INPUT_TYPE: pyo3::inspect::PyStaticExpr = super::hints::LIKE;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> Result<Self> {
        // Python's own lists and numbers have no protocol for arrays: to ask takes as long as NumPy's conversion.
        let is_plain = object.is_exact_instance_of::<PyList>()
            || object.is_exact_instance_of::<PyTuple>()
            || object.is_exact_instance_of::<PyFloat>()
            || object.is_exact_instance_of::<PyInt>();
        if is_plain {
            let memory = through_pyo3(|| converted::<T>(object, None))?;
            return PyTensorOf::borrowing(memory, None).map(Self);
        }
        let is_as_wanted =
            |tensor: &Tensor| tensor.dtype() == T::DTYPE && tensor.device().is_host_accessible();
        let memory = match import_argument(object) {
            Ok(memory) if is_as_wanted(memory.tensor()) => memory,
            Ok(_) => through_pyo3(|| converted::<T>(object, None))?,
            Err(Error::Unsupported(why)) => through_pyo3(|| converted::<T>(object, Some(*why)))?,
            // NumPy may read what the object's own protocol has just refused.
            Err(error) => return Err(error),
        };
        PyTensorOf::borrowing(memory, None).map(Self)
    }
}

/// What `numpy.asarray` makes of an object, with elements of type `T`. `why` an import refused it.
#[cold]
fn converted<T: Element>(
    object: Borrowed<'_, '_, PyAny>,
    why: Option<PyErr>,
) -> Result<BorrowedMemory> {
    let py = object.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    let asarray = numpy.attribute(intern!(py, "asarray"))?;
    let array = match (asarray.call1((object,)), why) {
        // NumPy takes a table that it does not know (DuckDB) for a sequence.
        (Err(error), Some(why))
            if is_refusal(py, &error) && object.hasattr(intern!(py, "__arrow_c_stream__"))? =>
        {
            return Err(Error::from(why).caused_by(py, error));
        }
        (array, _) => array?,
    };
    // NumPy's `dtype.name` is Python code, which takes as long as the conversion of a short list.
    let imported = unless_refused(py, import_argument(array.as_borrowed()))?;
    if let Some(memory) = imported.filter(|memory| memory.tensor().dtype() == T::DTYPE) {
        return Ok(memory);
    }
    let found = array.attribute(intern!(py, "dtype"))?;
    let (name, wanted) = (found.attribute(intern!(py, "name"))?, T::DTYPE.to_string());
    let kind: String = found.attribute(intern!(py, "kind"))?.extract()?;
    let are_integers =
        matches!(&*kind, "i" | "u") && matches!(T::DTYPE.code, TypeCode::INT | TypeCode::UINT);
    let is_empty = unless_refused(py, array.len())? == Some(0);
    if !(are_integers || is_empty) {
        let fits = numpy.call_method1(intern!(py, "can_cast"), (found, &wanted, "same_kind"))?;
        if !matches!(&*kind, "b" | "i" | "u" | "f" | "c") {
            let list = object.get_type().name()?;
            let message = match no_number(object, &asarray)? {
                Some((index, item)) => format!(
                    "expected {wanted}, found {} at index {index:?} of the {list}; pass numbers",
                    item.get_type().name()?,
                ),
                None => format!(
                    "expected {wanted}, found {list}, which NumPy reads as {name}; pass numbers"
                ),
            };
            return Err(Error::from(error_of::<PyTypeError>(message)));
        }
        if !fits.is_truthy()? {
            let found = array.attribute(intern!(py, "dtype"))?.extract::<PyDType>();
            let from = unless_refused(py, found)?.map_or(T::DTYPE, |found| found.0);
            let conversion = Conversion { from, to: T::DTYPE };
            return Err(Error::from(error_of::<PyTypeError>(format!(
                "expected {wanted}, found {name}, which is another kind of number; convert it with {}{}",
                conversion.numpy(false),
                conversion.loss()
            ))));
        }
    }
    let converted = asarray.call1((&array, &wanted))?;
    if are_integers {
        let differs = numpy.call_method1(intern!(py, "not_equal"), (&array, &converted))?;
        if differs.call_method0(intern!(py, "any"))?.is_truthy()? {
            let at: usize = differs.call_method0(intern!(py, "argmax"))?.extract()?;
            let (index, value) = element(&array, at)?;
            let at = if index.is_empty() { String::new() } else { format!(" at index {index:?}") };
            let message = format!("expected numbers within {wanted}, found {value}{at}");
            return Err(Error::from(error_of::<PyOverflowError>(message)));
        }
    }
    import_argument(converted.as_borrowed())
}

/// The index and the value of an element of a NumPy array, by its number in row-major order.
fn element<'py>(array: &Bound<'py, PyAny>, at: usize) -> Result<(Vec<usize>, Bound<'py, PyAny>)> {
    let py = array.py();
    let mut index: Vec<usize> = array.attribute(intern!(py, "shape"))?.extract()?;
    let mut rest = at;
    for extent in index.iter_mut().rev() {
        (*extent, rest) = (rest % *extent, rest / *extent);
    }
    Ok((index, array.attribute(intern!(py, "flat"))?.get_item(at)?))
}

/// The first item of a list or tuple, with its index, that is no number. `None` for another object, and if NumPy has no
/// dtype for an int.
fn no_number<'py>(
    object: Borrowed<'_, 'py, PyAny>,
    asarray: &Bound<'py, PyAny>,
) -> Result<Option<(Vec<usize>, Bound<'py, PyAny>)>> {
    let py = object.py();
    if !(object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>()) {
        return Ok(None);
    }
    let objects = asarray.call1((object, intern!(py, "O")))?;
    for (at, item) in objects.attribute(intern!(py, "flat"))?.try_iter()?.enumerate() {
        let dtype = asarray.call1((item?,))?.attribute(intern!(py, "dtype"))?;
        let kind: String = dtype.attribute(intern!(py, "kind"))?.extract()?;
        if !matches!(&*kind, "b" | "i" | "u" | "f" | "c") {
            let found = element(&objects, at)?;
            return Ok(Some(found).filter(|(_, item)| !item.is_instance_of::<PyInt>()));
        }
    }
    Ok(None)
}
