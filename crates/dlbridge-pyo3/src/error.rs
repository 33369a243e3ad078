//! The conversion of tensor errors to Python exceptions.
//! Invariant: an export or import that is impossible as requested is a `BufferError`, as the array
//! API standard requires; never a `TypeError`, which consumers interpret as a missing keyword.

use dlbridge::protocol::Refusal;
use dlbridge::{DescriptorError, ErrorKind, PartError};
use pyo3::PyErr;
use pyo3::exceptions::{PyBufferError, PyIndexError, PyMemoryError, PyTypeError, PyValueError};

/// The error of a function that handles tensors and Python objects.
///
/// A `#[pyfunction]` can return it: PyO3 converts it to the exception.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A tensor was rejected, or cannot be used as requested.
    Tensor(dlbridge::Error),
    /// A Python exception.
    Python(PyErr),
}

/// The result of a function that handles tensors and Python objects.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn buffer(message: impl Into<String>) -> Self {
        Self::Python(PyBufferError::new_err(message.into()))
    }

    /// Rejects memory under automatic differentiation, which would not record what is done with it.
    pub(crate) fn requires_grad(wanted: &str, kind: &str) -> Self {
        Self::buffer(format!(
            "expected {wanted}, found a {kind} that requires grad: pass x.detach()"
        ))
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tensor(error) => f.write_str(&in_python(error)),
            Self::Python(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Tensor(error) => Some(error),
            Self::Python(error) => Some(error),
        }
    }
}

impl From<dlbridge::Error> for Error {
    fn from(error: dlbridge::Error) -> Self {
        Self::Tensor(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::buffer(refusal.to_string())
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

/// The message of a tensor error, with Python's call in place of Rust's.
pub(crate) fn in_python(error: &dlbridge::Error) -> String {
    let mut message = error.to_string();
    if let Some(rust) = error.help() {
        message.truncate(message.len() - rust.len() - "; ".len());
    }
    if let dlbridge::Error::DTypeMismatch { expected, .. } = error {
        return format!("{message}; pass x.astype(\"{expected}\")");
    }
    message + help(error)
}

/// The call of Python that helps.
fn help(error: &dlbridge::Error) -> &'static str {
    match error {
        dlbridge::Error::Descriptor(DescriptorError::NullData { .. }) => {
            "; a fake tensor (FakeTensorMode, torch.compile) has a shape but no memory"
        }
        dlbridge::Error::SharedMemory
        | dlbridge::Error::ReadOnly
        | dlbridge::Error::Overlapping
        | dlbridge::Error::Misaligned { .. } => "; pass a copy: np.array(x), in PyTorch x.clone()",
        dlbridge::Error::NotContiguous { .. } | dlbridge::Error::StrideMismatch { .. } => {
            "; pass np.ascontiguousarray(x), or another framework's x.contiguous()"
        }
        dlbridge::Error::Part(PartError::ReshapeCopies { .. }) => "; pass np.ascontiguousarray(x)",
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
            Error::Python(error) => return error,
            Error::Tensor(error) => error,
        };
        let message = in_python(&error);
        match error.kind() {
            ErrorKind::DType => PyTypeError::new_err(message),
            ErrorKind::Index => PyIndexError::new_err(message),
            ErrorKind::OutOfMemory => PyMemoryError::new_err(message),
            ErrorKind::Shape
            | ErrorKind::OutOfBounds
            | ErrorKind::UnknownName
            | ErrorKind::Argument => PyValueError::new_err(message),
            _ => PyBufferError::new_err(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_for_python_names_no_rust_call() {
        let contiguous = dlbridge::Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
        for error in [dlbridge::Error::ReadOnly, dlbridge::Error::SharedMemory, contiguous] {
            let rust = error.help().expect("a copy helps");
            let message = in_python(&error);
            assert!(!message.contains(rust) && !message.contains("to_contiguous"), "{message}");
            assert!(message.contains("; pass "), "{message}");
        }
    }
}
