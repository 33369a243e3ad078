//! Why a call failed, and what a function may return.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge_pyo3::attach;

/// Why a call failed: the message of the exception that the framework raises.
// As small as this, a `Result` of a call is returned in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<str>);

impl Failure {
    /// A failure with a message.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into().into())
    }

    /// The failure for an argument that is of another kind than its parameter.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub fn of_kind(name: &str) -> Self {
        Self::new(format!(
            "{name}: expected what the parameter says, found an argument of another kind"
        ))
    }

    #[cold]
    pub(crate) fn of_count() -> Self {
        Self("called with another number of arguments".into())
    }
}

/// Runs work that must not unwind into C.
///
/// # Errors
///
/// The message of its panic.
#[inline]
pub(crate) fn catch<R>(work: impl FnOnce() -> R) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
        let failure = Failure::new(text.unwrap_or("without words"));
        // Dropping it could panic again.
        std::mem::forget(payload);
        failure
    })
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl From<dlbridge::Error> for Failure {
    #[cold]
    #[inline(never)]
    fn from(error: dlbridge::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<dlbridge_pyo3::Error> for Failure {
    #[cold]
    #[inline(never)]
    fn from(error: dlbridge_pyo3::Error) -> Self {
        match error {
            dlbridge_pyo3::Error::Tensor(error) => (*error).into(),
            // An exception is read and dropped by Python; a framework has released the GIL.
            error => attach(move |_| {
                let error = error;
                Self::new(error.to_string())
            }),
        }
    }
}

#[cfg(feature = "cudarc-0_19")]
impl From<cudarc::driver::DriverError> for Failure {
    fn from(error: cudarc::driver::DriverError) -> Self {
        Self::new(format!("driver: {error}"))
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self(message.into())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// What an operator's function returns: nothing, or a `Result` whose error becomes the framework's exception.
#[diagnostic::on_unimplemented(
    message = "an operator's function cannot return `{Self}`",
    note = "it returns nothing, or a `Result<(), E>` where `E` is `Failure`, an error of `dlbridge` or `dlbridge_pyo3`, `String` or `&str`"
)]
pub trait Outcome: sealed::Sealed {
    /// The result of the call.
    ///
    /// # Errors
    ///
    /// The function's own.
    fn into_result(self) -> Result<(), Failure>;
}

impl sealed::Sealed for () {}

impl Outcome for () {
    #[inline(always)]
    fn into_result(self) -> Result<(), Failure> {
        Ok(())
    }
}

impl<E: Into<Failure>> sealed::Sealed for Result<(), E> {}

impl<E: Into<Failure>> Outcome for Result<(), E> {
    #[inline(always)]
    fn into_result(self) -> Result<(), Failure> {
        self.map_err(Into::into)
    }
}
