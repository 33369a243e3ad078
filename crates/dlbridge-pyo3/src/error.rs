//! The conversion of tensor errors to Python exceptions.
//! Invariant: an export or import that is impossible as requested is a `BufferError`, as the array
//! API standard requires; never a `TypeError`, which consumers interpret as a missing keyword.

use std::borrow::Cow;

use dlbridge::protocol::Refusal;
use dlbridge::{DType, DescriptorError, ErrorKind, ShapeField, TypeCode};
use pyo3::exceptions::{
    PyBufferError, PyException, PyIndexError, PyMemoryError, PyRecursionError, PyTypeError,
    PyValueError,
};
use pyo3::types::PyString;
use pyo3::{Py, PyAny, PyErr, PyErrArguments, PyTypeInfo, Python};

/// The error of a function that handles tensors and Python objects: two words, so that `Result` stays small.
///
/// A `#[pyfunction]` can return it: PyO3 converts it to the exception.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A tensor was rejected, or cannot be used as requested.
    Tensor(Box<dlbridge::Error>),
    /// A Python exception.
    Python(Box<PyErr>),
    /// The exception for an object that has no protocol, or whose elements have no dtype of DLPack:
    /// [`PyTensorLike`](crate::PyTensorLike) has NumPy convert it.
    Unsupported(Box<PyErr>),
}

/// The result of a function that handles tensors and Python objects. Other errors can be named:
/// `Result<f32, dlbridge::Error>`.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An exception with a text. PyO3's own makes the text when it is raised, and without memory for it ends the process:
/// this one then has none.
#[doc(hidden)]
#[inline]
pub fn error_of<E: PyTypeInfo>(text: impl Into<Cow<'static, str>>) -> PyErr {
    exception::<E>(text.into())
}

/// Out of line, because errors are made in many places.
#[cold]
#[inline(never)]
fn exception<E: PyTypeInfo>(text: Cow<'static, str>) -> PyErr {
    PyErr::new::<E, _>(Text(text))
}

struct Text(Cow<'static, str>);

impl PyErrArguments for Text {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        let text = PyString::from_bytes(py, self.0.as_bytes());
        text.map_or_else(|_| py.None(), |text| text.into_any().unbind())
    }
}

impl Error {
    pub(crate) fn buffer(message: impl Into<Cow<'static, str>>) -> Self {
        error_of::<PyBufferError>(message).into()
    }

    /// (A `From` of this type would stand in the compiler's help for a `?` of users.)
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::buffer(refusal.to_string())
    }

    /// Panics for an error that checks made before exclude.
    #[cold]
    pub(crate) fn impossible(self) -> ! {
        panic!("checked before, but {self}")
    }

    /// The error of a tensor that cannot be written as requested.
    pub(crate) fn of_writing(error: dlbridge::Error) -> Self {
        match help(&error) {
            "" => error.into(),
            _ => Self::buffer(in_python(&error) + RESULT_IN_COPY),
        }
    }

    /// Rejects elements that have no dtype of DLPack.
    pub(crate) fn dtype(message: impl Into<Cow<'static, str>>) -> Self {
        Self::unsupported(error_of::<PyBufferError>(message))
    }

    /// An error after which NumPy may convert the object.
    #[cold]
    pub(crate) fn unsupported(error: PyErr) -> Self {
        Self::Unsupported(Box::new(error))
    }

    /// Whether it says that an object cannot do what was asked of it, so that another way may be tried. Interrupts
    /// and exits say nothing of the object; without memory, or with the stack used up, another way would fail as well.
    pub(crate) fn is_refusal(&self, py: Python<'_>) -> bool {
        match self {
            Self::Tensor(error) => error.kind() != ErrorKind::OutOfMemory,
            Self::Python(error) | Self::Unsupported(error) => is_refusal(py, error),
        }
    }

    /// The same error, with another exception as its cause.
    #[cold]
    pub(crate) fn caused_by(self, py: Python<'_>, cause: PyErr) -> Self {
        let is_unsupported = matches!(self, Self::Unsupported(_));
        let error = PyErr::from(self);
        error.set_cause(py, Some(cause));
        if is_unsupported { Self::unsupported(error) } else { error.into() }
    }

    /// Rejects memory under automatic differentiation, which would not record what is done with it.
    pub(crate) fn requires_grad(wanted: &str, kind: &str) -> Self {
        error_of::<PyTypeError>(format!(
            "expected {wanted}, found a {kind} that requires grad: pass x.detach()"
        ))
        .into()
    }
}

/// As [`Error::is_refusal`].
pub(crate) fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
        && !error.is_instance_of::<PyMemoryError>(py)
        && !error.is_instance_of::<PyRecursionError>(py)
}

/// The value, or `None` for an error that is a refusal.
pub(crate) fn unless_refused<T, E: Into<Error>>(
    py: Python<'_>,
    outcome: std::result::Result<T, E>,
) -> Result<Option<T>> {
    match outcome.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_refusal(py) => Ok(None),
        Err(error) => Err(error),
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(error) => f.write_str(&in_python(error)),
            Self::Python(error) | Self::Unsupported(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tensor(error) => Some(&**error),
            Self::Python(error) | Self::Unsupported(error) => Some(&**error),
        }
    }
}

// Out of line, because a `?` in each second line makes one.

impl From<dlbridge::Error> for Error {
    #[cold]
    #[inline(never)]
    fn from(error: dlbridge::Error) -> Self {
        Self::Tensor(Box::new(error))
    }
}

impl From<PyErr> for Error {
    #[cold]
    #[inline(never)]
    fn from(error: PyErr) -> Self {
        Self::Python(Box::new(error))
    }
}

/// What a caller whose array cannot be written in place must know of a copy.
pub(crate) const RESULT_IN_COPY: &str = ", and read the result from that copy";

/// The message of a tensor error, with Python's call in place of Rust's.
pub(crate) fn in_python(error: &dlbridge::Error) -> String {
    let mut message = error.to_string();
    if let Some(rust) = error.help() {
        message.truncate(message.len() - rust.len() - "; ".len());
    }
    let found = match error {
        dlbridge::Error::DTypeMismatch { found, expected } => Conversion::of(*found, &[*expected]),
        dlbridge::Error::DTypeNotIn { found, expected } => Conversion::of(*found, expected),
        _ => None,
    };
    match found {
        Some(conversion) => {
            format!("{message}; pass {}{}", conversion.numpy(false), conversion.loss())
        }
        None => message + help(error),
    }
}

/// The conversion of an array to another dtype that loses the least.
pub(crate) struct Conversion {
    pub(crate) from: DType,
    pub(crate) to: DType,
}

impl Conversion {
    /// `None` without a dtype to convert to.
    pub(crate) fn of(from: DType, wanted: &[DType]) -> Option<Self> {
        let lost = |to: &&DType| from.lost_bits(**to).unwrap_or(u32::MAX);
        wanted.iter().min_by_key(lost).map(|&to| Self { from, to })
    }

    /// Whether the imaginary parts are lost.
    fn is_real_part(&self) -> bool {
        is_complex(self.from) && !is_complex(self.to)
    }

    /// The call for arrays that NumPy reads, which makes an array of NumPy: `x.astype` is missing in TensorFlow, takes no
    /// name in MLX and keeps 32 bits in JAX; `x.real` is a method in Paddle.
    pub(crate) fn numpy(&self, makes_writable: bool) -> String {
        let Self { from, to } = *self;
        // The number types of Python's package `ml_dtypes` have no name in NumPy, and its complex numbers no `real`.
        let name = match to.code {
            TypeCode::BOOL
            | TypeCode::INT
            | TypeCode::UINT
            | TypeCode::FLOAT
            | TypeCode::COMPLEX
                if to != DType::COMPLEX32 =>
            {
                format!("\"{to}\"")
            }
            _ => format!("ml_dtypes.{to}"),
        };
        let complex = if from.bits < 64 { ", \"complex64\"" } else { "" };
        match (self.is_real_part(), makes_writable) {
            (true, _) => format!("np.asarray(x{complex}).real.astype({name})"),
            (false, true) => format!("np.array(x, {name})"),
            (false, false) => format!("np.asarray(x, {name})"),
        }
    }

    /// The call for a tensor of PyTorch.
    pub(crate) fn torch(&self) -> String {
        format!("x{}.to(torch.{})", if self.is_real_part() { ".real" } else { "" }, self.to)
    }

    /// What is lost, other than digits.
    pub(crate) fn loss(&self) -> &'static str {
        let is_float = |dtype: DType| dtype.lost_bits(DType::F64).is_some() && !is_integer(dtype);
        match self {
            _ if self.from.lost_bits(self.to).is_some() => "",
            _ if self.is_real_part() => ", without the imaginary parts",
            Self { to: DType::BOOL, .. } => ", which says what is not 0",
            _ if is_float(self.from) => ", without the fractions",
            _ => ", if the numbers fit",
        }
    }
}

fn is_complex(dtype: DType) -> bool {
    matches!(dtype.code, TypeCode::COMPLEX | TypeCode::BCOMPLEX)
}

fn is_integer(dtype: DType) -> bool {
    matches!(dtype.code, TypeCode::INT | TypeCode::UINT | TypeCode::BOOL)
}

/// The call of Python that helps.
fn help(error: &dlbridge::Error) -> &'static str {
    match error {
        dlbridge::Error::Descriptor(DescriptorError::NullData { .. }) => {
            "; a fake tensor (FakeTensorMode, torch.compile) has a shape but no memory"
        }
        // Every array of Python is shared, also a copy: the function must change, not its caller.
        dlbridge::Error::SharedMemory => {
            "; in the function, read it by view(), write it as a PyTensorMut, or take a PyTensorOf with a promise \
             that callers leave it alone: struct Stable; unsafe \
             impl StableArguments for Stable {}"
        }
        dlbridge::Error::ReadOnly
        | dlbridge::Error::Overlapping
        | dlbridge::Error::Misaligned { .. } => "; pass a copy: np.array(x), in PyTorch x.clone()",
        dlbridge::Error::NotContiguous { .. } | dlbridge::Error::StrideMismatch { .. } => {
            "; pass np.ascontiguousarray(x), or another framework's x.contiguous()"
        }
        dlbridge::Error::ShapeMismatch { field: ShapeField::Ndim, .. } => {
            "; pass x.reshape(...) with as many axes"
        }
        dlbridge::Error::Part { kind: ErrorKind::Layout, .. } => "; pass np.ascontiguousarray(x)",
        dlbridge::Error::NotHostAccessible { .. } => {
            "; pass a copy on the host: from_dlpack(x, device=\"cpu\")"
        }
        dlbridge::Error::LegacyReadOnly => {
            "; ask for max_version=(1, 0) or newer, or for copy=True"
        }
        dlbridge::Error::LegacyPadded { .. } => "; ask for max_version=(1, 1) or newer",
        _ => "",
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let error = match error {
            Error::Python(error) | Error::Unsupported(error) => return *error,
            Error::Tensor(error) => error,
        };
        let message = in_python(&error);
        match error.kind() {
            ErrorKind::DType => error_of::<PyTypeError>(message),
            ErrorKind::Index => error_of::<PyIndexError>(message),
            ErrorKind::OutOfMemory => error_of::<PyMemoryError>(message),
            ErrorKind::Shape
            | ErrorKind::OutOfBounds
            | ErrorKind::UnknownName
            | ErrorKind::Argument => error_of::<PyValueError>(message),
            // The array API asks for it where a reshape needs a copy.
            ErrorKind::Layout if matches!(*error, dlbridge::Error::Part { .. }) => {
                error_of::<PyValueError>(message)
            }
            _ => error_of::<PyBufferError>(message),
        }
    }
}

/// As [`dlbridge::match_dtype!`], with the error of this crate: it can be the last expression of a function that returns a
/// [`Result`], and a `?` behind it works in a `PyResult` as well.
///
/// ```
/// use dlbridge_pyo3::{PyTensor, Result, match_dtype};
/// use pyo3::prelude::*;
///
/// #[pyfunction]
/// fn sum(x: PyTensor) -> Result<f64> {
///     match_dtype!(x.dtype(), T: f32 | f64 | i32 => x.view::<T>()?.iter().map(f64::from).sum())
/// }
///
/// #[pyfunction]
/// fn itemsize(x: PyTensor) -> PyResult<usize> {
///     Ok(match_dtype!(x.dtype(), T: f32 | f64 => size_of::<T>())?)
/// }
/// # Python::initialize();
/// # Python::attach(|py| -> PyResult<()> {
/// # let x = PyTensor::from(vec![1_i32, 2]).into_pyobject(py)?;
/// assert_eq!(wrap_pyfunction!(sum, py)?.call1((&x,))?.extract::<f64>()?, 3.0);
/// # wrap_pyfunction!(itemsize, py)?.call1((&x,)).unwrap_err();
/// # Ok(()) }).unwrap();
/// ```
#[macro_export]
macro_rules! match_dtype {
    ($dtype:expr, $T:ident : $($type:ty)|+ => $body:expr $(,)?) => {
        $crate::__dlbridge::match_dtype!($dtype, $T: $($type)|+ => $body)
            .map_err($crate::Error::from)
    };
    ($($other:tt)*) => { $crate::__dlbridge::match_dtype!($($other)*) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_python_names_no_rust_call() {
        let contiguous = dlbridge::Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
        for error in [dlbridge::Error::ReadOnly, dlbridge::Error::Overlapping, contiguous] {
            let rust = error.help().expect("a copy helps");
            let message = in_python(&error);
            assert!(!message.contains(rust) && !message.contains("to_contiguous"), "{message}");
            assert!(message.contains("; pass "), "{message}");
        }
    }
}
