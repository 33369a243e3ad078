//! The elements of a `dlbridge.Tensor` as Python numbers, and as text.
//! Invariant: only host memory is read, of types that Python has numbers for.

use dlbridge::ffi::only;
use dlbridge::{Element, Tensor, TypeCode, View, match_dtype};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyComplex;

use crate::error::error_of;
use crate::ffi::elements::{Bfloat, Complex, Float8, Half, list_of};
use crate::{Error, Result};

/// Above this number of elements, text has only the outermost ones, as in NumPy.
const MANY: usize = 1000;
/// How many of them at each end of an axis.
const EDGE: usize = 3;
/// How long a line is.
const LINE: usize = 75;

/// The value of an element. What is done with it is compiled once, not once for each type of elements.
#[derive(Clone, Copy)]
pub(super) enum Number {
    Signed(i64),
    /// Of 64 bits.
    Unsigned(u64),
    Single(f32),
    Double(f64),
    Bool(bool),
    SingleComplex([f32; 2]),
    DoubleComplex([f64; 2]),
}

impl Number {
    pub(super) fn is_truthy(self) -> bool {
        match self {
            Self::Signed(value) => value != 0,
            Self::Unsigned(value) => value != 0,
            Self::Single(value) => value != 0.0,
            Self::Double(value) => value != 0.0,
            Self::Bool(value) => value,
            Self::SingleComplex(parts) => parts != [0.0; 2],
            Self::DoubleComplex(parts) => parts != [0.0; 2],
        }
    }

    pub(super) fn to_python(self, py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        match self {
            Self::Signed(value) => value.into_bound_py_any(py),
            Self::Unsigned(value) => value.into_bound_py_any(py),
            Self::Single(value) => f64::from(value).into_bound_py_any(py),
            Self::Double(value) => value.into_bound_py_any(py),
            Self::Bool(value) => value.into_bound_py_any(py),
            Self::SingleComplex(parts) => Self::DoubleComplex(parts.map(f64::from)).to_python(py),
            Self::DoubleComplex([real, imaginary]) => {
                Ok(PyComplex::from_doubles(py, real, imaginary).into_any())
            }
        }
    }

    fn to_text(self) -> String {
        let complex = |[real, imaginary]: [Self; 2]| {
            let (real, imaginary) = (real.to_text(), imaginary.to_text());
            let sign = if imaginary.starts_with('-') { "" } else { "+" };
            format!("({real}{sign}{imaginary}j)")
        };
        match self {
            Self::Signed(value) => value.to_string(),
            Self::Unsigned(value) => value.to_string(),
            Self::Single(value) => format!("{value:?}").to_lowercase(),
            Self::Double(value) => format!("{value:?}").to_lowercase(),
            Self::Bool(value) => if value { "True" } else { "False" }.to_owned(),
            Self::SingleComplex(parts) => complex(parts.map(Self::Single)),
            Self::DoubleComplex(parts) => complex(parts.map(Self::Double)),
        }
    }
}

/// An element type that Python has numbers for.
trait Value: Element {
    fn number(self) -> Number;
}

macro_rules! values {
    ($($type:ty, |$value:ident| $number:expr;)*) => {$(
        impl Value for $type {
            fn number(self) -> Number {
                let $value = self;
                $number
            }
        }
    )*};
}

values! {
    i8, |value| Number::Signed(value.into());
    i16, |value| Number::Signed(value.into());
    i32, |value| Number::Signed(value.into());
    i64, |value| Number::Signed(value);
    u8, |value| Number::Signed(value.into());
    u16, |value| Number::Signed(value.into());
    u32, |value| Number::Signed(value.into());
    u64, |value| Number::Unsigned(value);
    f32, |value| Number::Single(value);
    f64, |value| Number::Double(value);
    bool, |value| Number::Bool(value);
    Half, |value| Number::Single(value.to_f32());
    Bfloat, |value| Number::Single(value.to_f32());
    Complex<f32>, |value| Number::SingleComplex(value.0);
    Complex<f64>, |value| Number::DoubleComplex(value.0);
}

impl<const CODE: u8> Value for Float8<CODE> {
    fn number(self) -> Number {
        Number::Single(self.to_f32())
    }
}

type E3M4 = Float8<{ TypeCode::FLOAT8_E3M4.0 }>;
type E4M3 = Float8<{ TypeCode::FLOAT8_E4M3.0 }>;
type E4M3B11Fnuz = Float8<{ TypeCode::FLOAT8_E4M3B11FNUZ.0 }>;
type E4M3Fn = Float8<{ TypeCode::FLOAT8_E4M3FN.0 }>;
type E4M3Fnuz = Float8<{ TypeCode::FLOAT8_E4M3FNUZ.0 }>;
type E5M2 = Float8<{ TypeCode::FLOAT8_E5M2.0 }>;
type E5M2Fnuz = Float8<{ TypeCode::FLOAT8_E5M2FNUZ.0 }>;
type E8M0Fnu = Float8<{ TypeCode::FLOAT8_E8M0FNU.0 }>;

/// The elements by their index.
type At<'a> = Box<dyn Fn(&[usize]) -> Number + 'a>;

fn at<T: Value>(view: View<'_, T>) -> At<'_> {
    Box::new(move |index| view.get(index).expect("an index of the shape").number())
}

macro_rules! with_value {
    ($tensor:expr, |$T:ident| $body:expr, _ => $other:expr) => {
        match_dtype!($tensor.dtype(), $T: i8 | i16 | i32 | i64 | u8 | u16 | u32 | u64 | f32 | f64
            | bool | Half | Bfloat | Complex<f32> | Complex<f64> | E3M4 | E4M3 | E4M3B11Fnuz | E4M3Fn
            | E4M3Fnuz | E5M2 | E5M2Fnuz | E8M0Fnu => $body, _ => $other)
    };
}

/// The elements as nested lists; of a 0-d tensor, its number. Each element type has a loop of its own.
pub(super) fn to_list<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyAny>> {
    with_value!(tensor, |T| {
        let view = tensor.view::<T>()?;
        let mut values = view.iter();
        let mut next = || values.next().expect("as many as the shape says").number().to_python(py);
        let Some((&extent, outer)) = view.shape().split_last() else { return Ok(next()?) };
        Ok(list(py, outer, &mut || list_of(py, extent as usize, &mut next))?)
    }, _ => Err(no_numbers(tensor)))
}

/// A list for each index of the outer axes, of rows.
fn list<'py>(
    py: Python<'py>,
    outer: &[i64],
    row: &mut dyn FnMut() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some((&extent, inner)) = outer.split_first() else { return row() };
    list_of(py, extent as usize, || list(py, inner, row))
}

/// The number of a tensor of one element.
pub(super) fn one(tensor: &Tensor) -> Result<Number> {
    let number = with_value!(tensor, |T| only::<T>(tensor).map(T::number), _ => None);
    number.ok_or_else(|| not_one(tensor))
}

#[cold]
fn not_one(tensor: &Tensor) -> Error {
    if with_value!(tensor, |T| false, _ => true) {
        return no_numbers(tensor);
    }
    let device = tensor.device();
    if !device.is_host_accessible() {
        return dlbridge::Error::NotHostAccessible { device }.into();
    }
    let message = format!(
        "item: expected a tensor of one element, found shape {:?}; use x.item(index)",
        tensor.shape()
    );
    error_of::<PyValueError>(message).into()
}

/// The number of the element at an index, which has a position within each axis.
pub(super) fn at_index<'py>(
    py: Python<'py>,
    tensor: &Tensor,
    index: &[usize],
) -> Result<Bound<'py, PyAny>> {
    let number = with_value!(tensor, |T| tensor.view::<T>()?.get(index).map(T::number),
        _ => return Err(no_numbers(tensor)));
    Ok(number.expect("an index of the shape").to_python(py)?)
}

fn no_numbers(tensor: &Tensor) -> Error {
    let dtype = tensor.dtype();
    let help = match dtype.itemsize() {
        Some(_) => "x.numpy() has its values, with the package ml_dtypes",
        None => "x.tobytes() has its bits",
    };
    let message = format!("dtype: expected one that Python has numbers for, found {dtype}; {help}");
    error_of::<PyTypeError>(message).into()
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
    let at = with_value!(tensor, |T| at(tensor.view::<T>().ok()?), _ => return None);
    let mut text = String::new();
    write(&mut text, &mut vec![], tensor.shape(), &at, edge, indent);
    Some(text)
}

/// Writes the elements whose index begins with `index`, of `shape` in the other axes.
fn write(
    text: &mut String,
    index: &mut Vec<usize>,
    shape: &[i64],
    at: &At<'_>,
    edge: Option<usize>,
    indent: usize,
) {
    let Some((&extent, inner)) = shape.split_first() else {
        return text.push_str(&at(index).to_text());
    };
    let (extent, is_inner) = (extent as usize, inner.is_empty());
    let cut = edge.filter(|edge| extent > 2 * edge);
    let indent = indent + 1;
    let mut column = indent;
    text.push('[');
    let mut number = 0;
    while number < extent {
        let mut item = String::new();
        if cut == Some(number) {
            item.push_str("...");
            number = extent - EDGE;
        } else {
            index.push(number);
            write(&mut item, index, inner, at, edge, indent);
            index.pop();
            number += 1;
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
