//! Waiting with a limit.

use std::fmt;
use std::time::{Duration, Instant};

use dlbridge::Error;

/// Why a call with a timeout has no result.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout is over. The call can be made again.
    Timeout,
    /// Both ends send, and neither receives: this many messages wait here. Receive them, then make the call again.
    Stalled(usize),
    /// The call failed.
    Failed(Error),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("expected a result in the time, found none; call again"),
            Self::Stalled(waiting) => write!(
                f,
                "expected messages to be received before more are sent, found {waiting} waiting here, while the other end \
                 takes none: it may wait for this one; receive them, then send again, or receive on a thread of its own"
            ),
            Self::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

impl From<Error> for WaitError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<WaitError> for Error {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Timeout => Self::Refused { by: "timeout", reason: error.to_string() },
            WaitError::Stalled(_) => Self::Refused { by: "channel", reason: error.to_string() },
            WaitError::Failed(error) => error,
        }
    }
}

/// When a call stops waiting.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// `Duration::MAX` waits for ever.
    pub(crate) fn after(timeout: Duration) -> Self {
        Self(Instant::now().checked_add(timeout))
    }

    /// The time until then, and `most` at most.
    pub(crate) fn left(self, most: Duration) -> Duration {
        let left = self.0.map(|end| end.saturating_duration_since(Instant::now()));
        left.map_or(most, |left| left.min(most))
    }
}
