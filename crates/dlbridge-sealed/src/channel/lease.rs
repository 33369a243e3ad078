//! The lease of a message's memory, which belongs to the sender.
//! Invariant: the lease ends when the message and all its tensors are dropped.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlbridge::{Error, Tensor};

use super::end::Inner;
use super::raw::{Memory, process};
use super::reading::Answer;
use super::wire::{Entry, Kind};

/// What keeps the memory of a message.
#[derive(Debug)]
pub(super) struct Lease {
    memory: Memory,
    /// The channel that waits for its end, and its number.
    channel: Arc<Inner>,
    number: u64,
    /// A child that is forked later has the message too, and ends no lease.
    process: u64,
    /// Once the sender was asked to keep the memory as it is.
    answer: OnceLock<Arc<Answer>>,
}

impl Lease {
    pub(super) fn new(memory: Memory, channel: Arc<Inner>, number: u64) -> Self {
        let (process, answer) = (process(), OnceLock::new());
        Self { memory, channel, number, process, answer }
    }

    pub(super) fn tensor(self: &Arc<Self>, entry: &Entry) -> Result<Tensor, Error> {
        let Entry { dtype, shape, offset, len, .. } = entry;
        self.memory.tensor(Arc::clone(self), *dtype, shape, *offset, *len)
    }

    /// As [`Inner::keep`].
    pub(super) fn keep(&self, timeout: Duration) -> Result<Option<Option<OwnedFd>>, Error> {
        match self.memory {
            Memory::Slot(_) if self.process == process() => {
                self.channel.keep(self.number, &self.answer, timeout)
            }
            _ => Ok(Some(None)),
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Memory::Slot(slot) = &self.memory else { return };
        slot.end_lease();
        if self.process == process() {
            self.channel.tell(Kind::Return, self.number, None);
        }
    }
}
