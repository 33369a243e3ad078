//! The pool of systems that share no memory: a limit for messages.

use std::time::Duration;

use dlbridge::{DType, Error};

use super::LIMIT;
use super::loan::Loan;

/// The limit of messages that travel as bytes, on systems other than Linux.
#[derive(Clone, Debug)]
pub struct Pool {
    limit: usize,
}

impl Default for Pool {
    /// A pool of 256 MiB at most.
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Pool {
    /// A pool of at most so many bytes in each message.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit }
    }

    /// The bytes of memory that is used again: none.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        0
    }

    /// Loans memory for tensors, to be sent by several channels ([`Loan::ready`]).
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`](crate::Channel::loan).
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        Loan::by_bytes(tensors, self.limit)
    }

    /// As [`loan`](Self::loan), which never waits here.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`](crate::Channel::loan).
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        _timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        self.loan(tensors).map(Some)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }
}
