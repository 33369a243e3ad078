//! Memory for the messages of one channel or of several.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use dlbridge::{DType, Error};

use super::end::{End, Slots, readable};
use super::message::Loan;
use crate::lock;
use crate::wait::{Deadline, WaitError};

/// The limit of a pool that is given none, in bytes.
const LIMIT: usize = 256 << 20;
/// The longest sleep: another thread may have read what this one waits for, or dropped a loan.
const RECHECK: Duration = Duration::from_millis(5);

/// Memory for the messages of one channel or of several, with a limit.
///
/// A slot of memory is used again once all its readers have dropped its message. Of the free slots, the one that was freed
/// last is loaned first, because its pages are still in the processor's cache. At the limit of bytes, or of 512 slots, a loan
/// waits.
///
/// All channels of a pool share its slots, so a reader can see the messages of the others. Readers that
/// do not trust each other need a pool each.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(super) slots: Arc<Slots>,
    /// The channels of the pool, which return its memory.
    ends: Arc<Mutex<Vec<Weak<End>>>>,
}

impl Default for Pool {
    /// A pool of 256 MiB at most.
    fn default() -> Self {
        Self::new(LIMIT)
    }
}

impl Pool {
    /// A pool of at most `limit` bytes, which are allocated when they are first loaned.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { slots: Arc::new(Slots::new(limit)), ends: Arc::default() }
    }

    /// The bytes of all slots, free ones included.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.slots.nbytes()
    }

    /// The number of messages in this pool's memory that other ends have, and of those that this process has loaned and
    /// not sent, or keeps to send again.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        let sent: HashSet<u32> = self.ends().iter().flat_map(|end| end.sent_slots()).collect();
        (sent.len(), self.slots.in_use().saturating_sub(sent.len()))
    }

    /// Loans memory for tensors, to be sent by several channels ([`Loan::ready`]). Waits for a free slot.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`](crate::Channel::loan).
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        Ok(self.loan_timeout(tensors, Duration::MAX)?)
    }

    /// As [`loan`](Self::loan), but waits at most so long.
    ///
    /// # Errors
    ///
    /// As [`Channel::loan`](crate::Channel::loan), and [`WaitError::Timeout`].
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Loan, WaitError> {
        self.loan_for(None, tensors, timeout)
    }

    pub(super) fn loan_for(
        &self,
        end: Option<&Arc<End>>,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Loan, WaitError> {
        let plan = self.slots.plan(tensors)?;
        if let Some(slot) = self.slots.reuse(&plan)? {
            return Ok(Loan::new(slot, end.cloned())?);
        }
        let deadline = Deadline::after(timeout);
        loop {
            let ends = self.ends();
            let open: Vec<_> = ends.iter().filter(|end| end.collect()).collect();
            if let Some(slot) = self.slots.take(&plan)? {
                return Ok(Loan::new(slot, end.cloned())?);
            }
            let left = deadline.left(RECHECK);
            if left.is_zero() {
                return Err(WaitError::Timeout);
            }
            if open.iter().all(|end| end.leases() == 0) {
                ends.iter().try_for_each(|end| end.check_inbox())?;
            }
            readable(&open, left)?;
        }
    }

    /// The channels of the pool that are alive; none in a child that was forked, where the lock may be held for ever.
    fn ends(&self) -> Vec<Arc<End>> {
        if self.slots.is_elsewhere() {
            return Vec::new();
        }
        lock(&self.ends).iter().filter_map(Weak::upgrade).collect()
    }

    /// Adds a channel, whose loans fail where another process has the pool.
    pub(super) fn add(&self, end: &Arc<End>) {
        if self.slots.is_elsewhere() {
            return;
        }
        let mut ends = lock(&self.ends);
        ends.retain(|end| end.strong_count() > 0);
        ends.push(Arc::downgrade(end));
    }
}
