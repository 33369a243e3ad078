//! The methods of `dlbridge.Tensor` that an extension lacks without the feature `tensor-methods`: its parts and
//! values, and Arrow's. The Python package has them.

use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge::ffi::Place;
use dlbridge::{Device, Parts, TypeCode};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PySlice, PyString, PyTuple};
use pyo3::{IntoPyObjectExt, PyTraverseError, PyVisit, intern};

use super::values::Number;
use super::{index, values};
use crate::error::error_of;
use crate::ffi::arrow;
use crate::ffi::class::freeze;
use crate::ffi::elements::{int_of, int_of_float, to_bytes};
use crate::ffi::memory::viewed as reinterpreted;
use crate::interpreter::{Once, module};
use crate::stream::{copy, is_copied_to_host};
use crate::{Error, PyDType, PyDevice, Result, TensorObject};

pub(super) fn length(object: &TensorObject) -> PyResult<usize> {
    match object.inner().shape().first() {
        Some(&extent) => Ok(extent as usize),
        None => Err(error_of::<PyTypeError>(
            "expected a tensor with axes, found a 0-d tensor, which has no length; use x.item()",
        )),
    }
}

pub(super) fn part(object: &TensorObject, index: &Bound<'_, PyAny>) -> Result<TensorObject> {
    Ok(object.part(index::index(&object.tensor, index)?))
}

/// The parts of a tensor along its first axis, one after the other.
#[pyclass(frozen, module = "dlbridge")]
struct Rows {
    whole: Py<TensorObject>,
    next: AtomicUsize,
}

#[pymethods]
impl Rows {
    fn __iter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Result<Option<Bound<'py, TensorObject>>> {
        let whole = self.whole.get();
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= length(whole)? {
            return Ok(None);
        }
        Ok(Some(whole.part(whole.tensor.index(&[Place::At(index)])?).into_bound(py)?))
    }

    fn __length_hint__(&self) -> PyResult<usize> {
        Ok(length(self.whole.get())?.saturating_sub(self.next.load(Ordering::Relaxed)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.whole)
    }
}

pub(super) fn iterate<'py>(object: &Bound<'py, TensorObject>) -> PyResult<Bound<'py, PyAny>> {
    if object.get().inner().ndim() == 0 {
        return Err(error_of::<PyTypeError>(
            "expected a tensor with axes, found a 0-d tensor, which is not iterated; use x.item()",
        ));
    }
    static FROZEN: Once<()> = Once::new();
    let py = object.py();
    FROZEN.get_or_make(py, || freeze(&py.get_type::<Rows>()))?;
    Rows { whole: object.clone().unbind(), next: AtomicUsize::new(0) }.into_bound_py_any(py)
}

/// Iterates along the first axis from its end.
pub(super) fn reversed<'py>(object: &Bound<'py, TensorObject>) -> PyResult<Bound<'py, PyAny>> {
    if object.get().inner().ndim() == 0 {
        // Its error.
        return iterate(object);
    }
    let backwards = PySlice::new(object.py(), isize::MAX, isize::MIN, -1);
    iterate(object.get_item(backwards)?.cast()?)
}

/// `format(x, format)`.
pub(super) fn formatted<'py>(
    object: &Bound<'py, TensorObject>,
    format: &Bound<'py, PyString>,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    if format.is_empty()? {
        return Ok(object.str()?.into_any());
    }
    let tensor = object.get();
    if tensor.inner().ndim() > 0 {
        let message = format!(
            "format: expected a 0-d tensor for {:?}, found shape {:?}; use x.numpy()",
            format.to_str()?,
            tensor.inner().shape()
        );
        return Err(error_of::<PyTypeError>(message).into());
    }
    let number = tensor.read_at_once(py, values::one)??.to_python(py)?;
    Ok(number.call_method1(intern!(py, "__format__"), (format,))?)
}

pub(super) fn reshaped(object: &TensorObject, shape: &Bound<'_, PyTuple>) -> Result<TensorObject> {
    let shape = index::shape(shape, object.inner().len())?;
    Ok(object.part(object.tensor.reshape(&shape)?))
}

/// The same bytes as elements of another dtype.
pub(super) fn viewed(object: &TensorObject, dtype: &Bound<'_, PyTuple>) -> Result<TensorObject> {
    if dtype.len() != 1 {
        let message = format!("view: expected one dtype, found {}", dtype.len());
        return Err(error_of::<PyTypeError>(message).into());
    }
    let PyDType(dtype) = dtype.get_item(0)?.extract()?;
    Ok(object.part(reinterpreted(&object.tensor, dtype)?.into_shared()))
}

pub(super) fn transposed(object: &TensorObject) -> TensorObject {
    object.part(object.tensor.transpose())
}

pub(super) fn on_device<'py>(
    object: &Bound<'py, TensorObject>,
    device: &Bound<'py, PyTuple>,
) -> Result<Bound<'py, PyAny>> {
    if device.len() != 1 {
        let message = format!("to_device: expected one device, found {}", device.len());
        return Err(error_of::<PyTypeError>(message).into());
    }
    let PyDevice(wanted) = device.get_item(0)?.extract()?;
    let (this, py) = (object.get(), object.py());
    let found = this.inner().device();
    if wanted == found {
        return Ok(object.clone().into_any());
    }
    if wanted == Device::CPU && is_copied_to_host(found) {
        let copy = copy(py, this.inner(), this.ready.as_deref(), wanted)?;
        return Ok(TensorObject::made(py, copy)?.into_any());
    }
    Err(Error::buffer(format!(
        "to_device: expected {found}, where the memory is, found {wanted}; copy it with a framework \
         that has this device, as torch.from_dlpack(x).to(\"{wanted}\")"
    )))
}

pub(super) fn bytes<'py>(py: Python<'py>, object: &TensorObject) -> Result<Bound<'py, PyBytes>> {
    to_bytes(py, &*object.reading(py)?)
}

pub(super) fn list<'py>(py: Python<'py>, object: &TensorObject) -> Result<Bound<'py, PyAny>> {
    values::to_list(py, &*object.reading(py)?)
}

pub(super) fn item<'py>(
    py: Python<'py>,
    object: &TensorObject,
    index: &Bound<'py, PyTuple>,
) -> Result<Bound<'py, PyAny>> {
    if index.is_empty() {
        return Ok(object.read_at_once(py, values::one)??.to_python(py)?);
    }
    let tensor = object.reading(py)?;
    if let Some(positions) = index::positions(tensor.shape(), index)? {
        return values::at_index(py, &tensor, &positions);
    }
    let part = index::index(&object.tensor, index)?;
    if part.ndim() > 0 {
        let message = format!("item: expected {} indices, found {}", tensor.ndim(), index.len());
        return Err(error_of::<PyValueError>(message).into());
    }
    values::to_list(py, &part)
}

pub(super) fn truth(py: Python<'_>, object: &TensorObject) -> Result<bool> {
    let len = object.inner().len();
    if len != 1 {
        let message = format!(
            "bool: expected a tensor of one element, found {len}, whose truth value is ambiguous; use \
             x.numpy().any() or x.numpy().all()"
        );
        return Err(error_of::<PyValueError>(message).into());
    }
    Ok(object.read_at_once(py, values::one)??.is_truthy())
}

pub(super) fn int<'py>(py: Python<'py>, object: &TensorObject) -> Result<Bound<'py, PyAny>> {
    Ok(match scalar(py, object, "int")? {
        number @ (Number::Signed(_) | Number::Unsigned(_)) => number.to_python(py)?,
        Number::Single(value) => int_of_float(py, value.into())?,
        Number::Double(value) => int_of_float(py, value)?,
        number => int_of(&number.to_python(py)?)?,
    })
}

pub(super) fn float<'py>(py: Python<'py>, object: &TensorObject) -> Result<Bound<'py, PyAny>> {
    match scalar(py, object, "float")? {
        Number::Single(value) => Ok(f64::from(value).into_bound_py_any(py)?),
        Number::Double(value) => Ok(value.into_bound_py_any(py)?),
        number => float_of(py, number),
    }
}

#[cold]
fn float_of(py: Python<'_>, number: Number) -> Result<Bound<'_, PyAny>> {
    Ok(py.get_type::<PyFloat>().call1((number.to_python(py)?,))?)
}

pub(super) fn as_index<'py>(py: Python<'py>, object: &TensorObject) -> Result<Bound<'py, PyAny>> {
    let dtype = object.inner().dtype();
    if !matches!(dtype.code, TypeCode::INT | TypeCode::UINT) {
        let message = format!("expected an integer as an index, found {dtype}; use int(x)");
        return Err(error_of::<PyTypeError>(message).into());
    }
    Ok(scalar(py, object, "an index")?.to_python(py)?)
}

/// The number of a 0-d tensor.
fn scalar(py: Python<'_>, object: &TensorObject, wanted: &str) -> Result<Number> {
    if object.inner().ndim() != 0 {
        return Err(no_scalar(object, wanted));
    }
    object.read_at_once(py, values::one)?
}

#[cold]
fn no_scalar(object: &TensorObject, wanted: &str) -> Error {
    let shape = object.inner().shape();
    let message = format!("{wanted}: expected a 0-d tensor, found shape {shape:?}; use x.item()");
    error_of::<PyTypeError>(message).into()
}

/// The capsules of Arrow's schema and array.
pub(super) fn arrow_array<'py>(
    py: Python<'py>,
    object: &TensorObject,
) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    object.settle_on_host(py)?;
    arrow::capsules(py, object.handle())
}

/// The array of pyarrow, of the type that the caller requests.
pub(super) fn pyarrow_array<'py>(
    object: &Bound<'py, TensorObject>,
    arguments: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let column = PyDict::new(py);
    column.set_item("__arrow_c_array__", object.getattr(intern!(py, "__arrow_c_array__"))?)?;
    let types = module(intern!(py, "types"))?;
    let column = types.getattr(intern!(py, "SimpleNamespace"))?.call((), Some(&column))?;
    let array = module(intern!(py, "pyarrow"))?.call_method1(intern!(py, "array"), (column,))?;
    let wanted = match keywords.map(|keywords| keywords.get_item("type")).transpose()? {
        Some(Some(wanted)) => Some(wanted),
        _ => arguments.iter().next(),
    };
    match wanted.filter(|wanted| !wanted.is_none()) {
        Some(wanted) => Ok(array.call_method1("cast", (wanted,))?),
        None => Ok(array),
    }
}
