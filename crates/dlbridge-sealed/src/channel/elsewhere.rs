//! The fallback for systems that seal no memory: there is no end of a channel, and no slot.

use std::convert::Infallible;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dlbridge::{DType, Error, Tensor};

use super::wire::{Entry, Texts};
use crate::memfd::{Region, absent, unsupported};
use crate::wait::{Deadline, WaitError};

pub(super) type Taken = (Arc<[Entry]>, Texts, Lease);

absent! {
    End: send(&Arc<UsedSlot>, &[u8], Deadline) -> Result<(), WaitError>, flush_until(Deadline) -> Result<(), WaitError>,
        wait(Deadline) -> Result<bool, Error>, take() -> Option<Result<Option<Taken>, Error>>, collect() -> bool,
        leases() -> usize, sent_slots() -> Vec<u32>, check_inbox() -> Result<(), Error>, kept() -> (usize, usize),
        close() -> ();
    Lease: tensor(&Entry) -> Result<Tensor, Error>;
    UsedSlot: is_of(&Arc<Slots>) -> bool, entries() -> &[Entry], regions() -> Result<Vec<Region>, Error>,
        alive() -> usize;
}

impl End {
    pub(super) fn pair() -> Result<(Self, Self), Error> {
        unsupported()
    }
}

#[cfg(unix)]
impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

pub(super) fn readable(_: &[&Arc<End>], _: Duration) -> Result<(), Error> {
    unsupported()
}

#[derive(Debug)]
pub(super) struct Slots;

impl Slots {
    pub(super) fn new(_limit: usize) -> Self {
        Self
    }

    pub(super) fn nbytes(&self) -> usize {
        0
    }

    pub(super) fn is_elsewhere(&self) -> bool {
        false
    }

    pub(super) fn in_use(&self) -> usize {
        0
    }

    pub(super) fn plan(&self, _: &[(&str, DType, &[i64])]) -> Result<Infallible, Error> {
        unsupported()
    }

    pub(super) fn reuse(&self, plan: &Infallible) -> Result<Option<UsedSlot>, Error> {
        match *plan {}
    }

    pub(super) fn take(&self, plan: &Infallible) -> Result<Option<UsedSlot>, Error> {
        match *plan {}
    }
}
