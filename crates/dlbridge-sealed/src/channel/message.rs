//! A message that was received, and the lease of its memory.
//! Invariant: the lease ends when the message and all its tensors are dropped.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dlbridge::{Error, Tensor};

use super::end::Inner;
use super::raw::{Memory, process};
use super::reading::Answer;
use super::wire::{Entry, Kind};
use crate::{SealedTensors, seal};

/// Tensors that another process sent through a [`Channel`](super::Channel).
///
/// Their memory is leased: it belongs to the sender, which uses it again once this message and all its
/// tensors are dropped. Nothing is copied.
#[derive(Debug)]
pub struct Message {
    entries: Vec<Entry>,
    lease: Arc<Lease>,
}

/// What keeps the memory of a message.
#[derive(Debug)]
struct Lease {
    memory: Memory,
    /// The channel that waits for its end, and its number.
    from: Option<(Arc<Inner>, u64)>,
    /// A child that is forked later has the message too, and ends no lease.
    process: u64,
    /// Once the sender was asked to keep the memory as it is.
    answer: OnceLock<Arc<Answer>>,
}

impl Message {
    pub(super) fn new(
        entries: Vec<Entry>,
        memory: Memory,
        from: Option<(Arc<Inner>, u64)>,
    ) -> Self {
        let (process, answer) = (process(), OnceLock::new());
        Self { entries, lease: Arc::new(Lease { memory, from, process, answer }) }
    }

    /// The names of the tensors, in the order of the sender.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The bytes of all tensors.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.len).sum()
    }

    /// A tensor, read-only, without a copy: class [`Shared`](dlbridge::Access::Shared), because the sender is
    /// not trusted to leave it as it is. Read it by [`Tensor::view`].
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName).
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let found = self.entries.iter().find(|entry| entry.name == name);
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        let Entry { dtype, shape, offset, len, .. } = found.ok_or_else(unknown)?;
        let owner = Arc::clone(&self.lease);
        self.lease.memory.tensor(owner, *dtype, shape, *offset, *len)
    }

    /// A copy of a tensor in memory of this process: class [`Exclusive`](dlbridge::Access::Exclusive).
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName) or [`OutOfMemory`](Error::OutOfMemory).
    pub fn to_owned(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name)?.to_contiguous()
    }

    /// The tensors in a sealed file, for values that outlive the stream: class [`Frozen`](dlbridge::Access::Frozen).
    /// The sender gives up the memory, so that nothing is copied. Waits at most so long for it, since it answers only when it loans,
    /// sends or receives: `None` then, and the next call waits on.
    ///
    /// The values are copied where they came inline, where the sender is gone, where this end has kept as many bytes as its
    /// quota or the limit of the sender's pool, and where the kernel does not seal memory that another process maps (before
    /// Linux 6.7).
    ///
    /// # Errors
    ///
    /// Those of [`seal`](crate::seal) and [`SealedTensors::try_from`].
    pub fn keep(&self, timeout: Duration) -> Result<Option<SealedTensors>, Error> {
        let Lease { memory, from, process: owner, answer } = &*self.lease;
        if let (Memory::Slot(_), Some((channel, number))) = (memory, from) {
            if *owner == process() {
                match channel.keep(*number, answer, timeout)? {
                    Some(Some(file)) => return SealedTensors::try_from(file).map(Some),
                    Some(None) => {}
                    None => return Ok(None),
                }
            }
        }
        let tensors = self.names().map(|name| Ok((name, self.tensor(name)?)));
        let tensors = tensors.collect::<Result<Vec<_>, Error>>()?;
        seal(tensors.iter().map(|(name, tensor)| (*name, tensor))).map(Some)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Memory::Slot(slot) = &self.memory else { return };
        slot.end_lease();
        if let Some((channel, number)) = &self.from {
            if self.process == process() {
                channel.tell(Kind::Return, *number, None);
            }
        }
    }
}
