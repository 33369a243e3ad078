//! Calls that wait, and their errors in Python.
//! Invariant: no call waits with the GIL held, and none longer than `TICK` without a look at signals.

use dlbridge_pyo3::error_of;
use std::time::{Duration, Instant};

use dlbridge_pyo3::{Error, Result};
use dlbridge_sealed::WaitError;
use pyo3::exceptions::{PyOSError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;

use crate::create::bad_argument;

/// The longest time without a look at signals.
const TICK: Duration = Duration::from_millis(50);

/// When a call ends that waits.
#[derive(Clone, Copy)]
pub(crate) struct Timer(Option<Instant>);

impl Timer {
    pub(crate) fn new(timeout: Option<f64>) -> Result<Self> {
        let seconds = timeout.map(Duration::try_from_secs_f64).transpose();
        let seconds =
            seconds.map_err(|error| error_of::<PyValueError>(format!("timeout: {error}")))?;
        Ok(Self(seconds.and_then(|seconds| Instant::now().checked_add(seconds))))
    }

    /// Whether there is no end.
    pub(crate) fn is_endless(self) -> bool {
        self.0.is_none()
    }

    /// Calls a function that waits for the time that it is given, until it has a result: `TimeoutError` with a text at
    /// the end. The GIL is released meanwhile, and signals are looked at.
    pub(crate) fn wait<T: Send>(
        self,
        py: Python<'_>,
        late: &'static str,
        call: impl FnMut(Duration) -> std::result::Result<T, WaitError> + Send,
    ) -> Result<T> {
        Ok(self.try_wait(py, call)?.ok_or_else(|| error_of::<PyTimeoutError>(late))?)
    }

    pub(crate) fn try_wait<T: Send>(
        self,
        py: Python<'_>,
        mut call: impl FnMut(Duration) -> std::result::Result<T, WaitError> + Send,
    ) -> Result<Option<T>> {
        loop {
            let left = self.0.map_or(TICK, |end| end.saturating_duration_since(Instant::now()));
            match py.detach(|| call(left.min(TICK))) {
                Ok(found) => return Ok(Some(found)),
                Err(WaitError::Timeout) if left.is_zero() => return Ok(None),
                Err(WaitError::Timeout) => py.check_signals()?,
                Err(error) => return Err(exception(error.into())),
            }
        }
    }
}

/// A call of the system that failed is an `OSError`, a wrong argument a `ValueError`.
pub(crate) fn exception(error: dlbridge::Error) -> Error {
    match &error {
        dlbridge::Error::Refused { by, .. } if *by != "sealed tensors" => {
            let text = error.to_string().replace("private_tensors", "tensors() or private()");
            Error::from(error_of::<PyOSError>(text))
        }
        _ => bad_argument(error),
    }
}
