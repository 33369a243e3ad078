//! The elements of a `dlbridge.Tensor` as Python numbers, and as text.
//! Invariant: only host memory is read, of types that Python has numbers for.

use dlbridge::{Element, Parts, Tensor, View, match_dtype};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyComplex, PyList};

use crate::ffi::memory::{Bfloat, Complex, Half};
use crate::{Error, Result};

/// Above this number of elements, text has only the outermost ones, as in NumPy.
const MANY: usize = 1000;
/// How many of them at each end of an axis.
const EDGE: usize = 3;
/// The number of elements between two looks at signals.
const BETWEEN_SIGNALS: usize = 1 << 16;
/// How long a line is.
const LINE: usize = 75;

/// An element type that Python has numbers for.
trait Value: Element {
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>>;
    fn to_text(self) -> String;
}

macro_rules! values {
    ($($type:ty, |$value:ident| $text:expr;)*) => {$(
        impl Value for $type {
            fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                self.into_bound_py_any(py)
            }

            fn to_text(self) -> String {
                let $value = self;
                $text
            }
        }
    )*};
}

values! {
    i8, |value| value.to_string();
    i16, |value| value.to_string();
    i32, |value| value.to_string();
    i64, |value| value.to_string();
    u8, |value| value.to_string();
    u16, |value| value.to_string();
    u32, |value| value.to_string();
    u64, |value| value.to_string();
    f32, |value| format!("{value:?}").to_lowercase();
    f64, |value| format!("{value:?}").to_lowercase();
    bool, |value| if value { "True".to_owned() } else { "False".to_owned() };
}

macro_rules! floats {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
                self.to_f32().into_bound_py_any(py)
            }

            fn to_text(self) -> String {
                self.to_f32().to_text()
            }
        }
    )*};
}

floats!(Half, Bfloat);

impl<T: Value + Into<f64>> Value for Complex<T>
where
    Self: Element,
{
    fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        let [real, imaginary] = self.0.map(Into::into);
        Ok(PyComplex::from_doubles(py, real, imaginary).into_any())
    }

    fn to_text(self) -> String {
        let [real, imaginary] = self.0.map(Value::to_text);
        let sign = if imaginary.starts_with('-') { "" } else { "+" };
        format!("({real}{sign}{imaginary}j)")
    }
}

macro_rules! with_value {
    ($tensor:expr, |$T:ident| $body:expr, _ => $other:expr) => {
        match_dtype!($tensor.dtype(), $T: i8 | i16 | i32 | i64 | u8 | u16 | u32 | u64 | f32 | f64
            | bool | Half | Bfloat | Complex<f32> | Complex<f64> => $body, _ => $other)
    };
}

/// The elements as nested lists; of a tensor of rank 0, its number.
pub(super) fn to_list<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    with_value!(tensor, |T| Ok(list(py, &tensor.view::<T>()?)?), _ => Err(no_numbers(tensor)))
}

/// The number of a tensor of one element.
pub(super) fn one<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    with_value!(tensor, |T| {
        let mut values = tensor.view::<T>()?.iter();
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value.to_python(py)?),
            _ => {
                let message = format!(
                    "item: expected a tensor of one element, found shape {:?}; use x.item(index)",
                    tensor.shape()
                );
                Err(PyValueError::new_err(message).into())
            }
        }
    }, _ => Err(no_numbers(tensor)))
}

fn no_numbers(tensor: &Tensor) -> Error {
    let dtype = tensor.dtype();
    let help = match dtype.itemsize() {
        Some(_) => "x.numpy() has its values, with the package ml_dtypes",
        None => "x.tobytes() has its bits",
    };
    let message = format!("dtype: expected one that Python has numbers for, found {dtype}; {help}");
    PyTypeError::new_err(message).into()
}

fn list<'py, T: Value>(py: Python<'py>, view: &View<'_, T>) -> PyResult<Bound<'py, PyAny>> {
    if view.shape().is_empty() {
        return view.get(&[]).expect("a scalar has one element").to_python(py);
    }
    if view.shape().len() == 1 {
        return list_of(py, view.iter().map(|value| value.to_python(py)));
    }
    list_of(py, view.outer_iter().expect("it has axes").map(|part| list(py, &part)))
}

/// A list, whose memory is requested beforehand: a broadcast tensor has any number of elements, and a
/// vector that cannot grow ends the process.
fn list_of<'py>(
    py: Python<'py>,
    values: impl ExactSizeIterator<Item = PyResult<Bound<'py, PyAny>>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (mut items, size) = (Vec::new(), values.len().saturating_mul(size_of::<Py<PyAny>>()));
    let reserved = items.try_reserve_exact(values.len());
    reserved.map_err(|_| Error::from(dlbridge::Error::OutOfMemory { size }))?;
    for (index, value) in values.enumerate() {
        // An interrupt ends a list that takes long.
        if index % BETWEEN_SIGNALS == 0 {
            py.check_signals()?;
        }
        items.push(value?);
    }
    Ok(PyList::new(py, items)?.into_any())
}

/// The elements as text, the inner ones left out where there are many. `None` if they cannot be read.
pub(super) fn to_text(tensor: &Tensor, indent: usize) -> Option<String> {
    if !tensor.device().is_host_accessible() {
        return None;
    }
    if tensor.is_empty() {
        return Some("[]".to_owned());
    }
    let edge = if tensor.len() > MANY { Some(EDGE) } else { None };
    let shown = tensor.shape().iter().map(|&extent| extent.min(2 * EDGE as i64));
    // Many short axes: even the outermost elements are too many.
    if shown.fold(1, i64::saturating_mul) > 10 * MANY as i64 {
        return Some("[...]".to_owned());
    }
    with_value!(tensor, |T| {
        let view = tensor.view::<T>().ok()?;
        let mut text = String::new();
        write(&mut text, &view, edge, indent);
        Some(text)
    }, _ => None)
}

fn write<T: Value>(text: &mut String, view: &View<'_, T>, edge: Option<usize>, indent: usize) {
    let Some(&extent) = view.shape().first() else {
        return text.push_str(&view.get(&[]).expect("a scalar has one element").to_text());
    };
    let (extent, is_inner) = (extent as usize, view.shape().len() == 1);
    let cut = edge.filter(|edge| extent > 2 * edge);
    let indent = indent + 1;
    let mut column = indent;
    text.push('[');
    let mut index = 0;
    while index < extent {
        let mut item = String::new();
        if cut == Some(index) {
            item.push_str("...");
            index = extent - EDGE;
        } else {
            let part = view.select(0, index).expect("below the extent");
            write(&mut item, &part.view(), edge, indent);
            index += 1;
        }
        if text.ends_with('[') {
        } else if is_inner && column + item.len() + 2 <= LINE {
            text.push_str(", ");
            column += 2;
        } else {
            text.push_str(",\n");
            text.push_str(&" ".repeat(indent));
            column = indent;
        }
        column += item.len();
        text.push_str(&item);
    }
    text.push(']');
}
