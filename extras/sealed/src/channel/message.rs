//! Messages: loaned to be filled, ready to be sent, and received.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dlbridge::{Error, Tensor};

use super::end::{End, Lease, Slots, Taken, UsedSlot};
use super::wire::{self, Texts};
use crate::header::Entry;
use crate::memfd::Region;
use crate::wait::{Deadline, WaitError};
use crate::{SealedTensors, refused, seal};

/// Memory for the tensors of a message, to be filled and sent. Dropping it returns the memory to the pool.
#[derive(Debug)]
pub struct Loan {
    /// Dropped before the slot, which is free again if there is none. `None` where a tensor has it.
    parts: Vec<Option<Region>>,
    slot: UsedSlot,
    texts: Texts,
    end: Option<Arc<End>>,
}

impl Loan {
    pub(super) fn new(slot: UsedSlot, end: Option<Arc<End>>) -> Result<Self, Error> {
        let parts = slot.regions()?.into_iter().map(Some).collect();
        Ok(Self { parts, slot, texts: Texts::new(), end })
    }

    /// The names of the tensors.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.slot.entries().iter().map(|entry| entry.name.as_str())
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](dlbridge::Access::Exclusive). At first it has
    /// values of an earlier message. The message keeps what was written when the tensor is dropped.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = find(self.slot.entries(), name)?;
        let part = self.parts[place].take().ok_or_else(|| taken(name))?;
        let Entry { dtype, shape, .. } = &self.slot.entries()[place];
        Tensor::builder(part).dtype(*dtype).shape(shape).build::<u8>()
    }

    /// Fills a tensor with a copy of another one of its dtype and shape, of any strides and class.
    ///
    /// # Errors
    ///
    /// Another size in bytes, memory that the host cannot read, and those of [`tensor`](Self::tensor).
    pub fn copy_from(&mut self, name: &str, source: &Tensor) -> Result<(), Error> {
        let place = find(self.slot.entries(), name)?;
        let part = self.parts[place].as_mut().ok_or_else(|| taken(name))?;
        source.copy_to_bytes(part.as_mut())
    }

    /// Adds metadata: a string under a key.
    pub fn metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.texts.insert(key.into(), value.into());
    }

    /// How many tensors of [`tensor`](Self::tensor) are alive: sending fails until there is none.
    #[must_use]
    pub fn alive(&self) -> usize {
        self.slot.alive() - self.parts.iter().flatten().count()
    }

    /// Ends filling, so that any number of channels of the pool can send the message.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of [`tensor`](Self::tensor) is alive, or for more than 128 KiB of
    /// metadata. The loan is dropped then.
    pub fn ready(mut self) -> Result<Ready, Error> {
        self.parts.clear();
        let alive = self.alive();
        if alive > 0 {
            return Err(refused(format!(
                "expected that all tensors of the loan are dropped, found {alive} alive"
            )));
        }
        let texts = wire::encode_texts(&self.texts)?;
        Ok(Ready { slot: Arc::new(self.slot), texts: texts.into() })
    }

    /// Sends the message by the channel that loaned it.
    ///
    /// # Errors
    ///
    /// As [`ready`](Self::ready) and [`Channel::send`](crate::Channel::send); [`Refused`](Error::Refused) for a loan of
    /// a [`Pool`](crate::Pool), which names no channel.
    pub fn send(mut self) -> Result<(), Error> {
        let end = self.end.take().ok_or_else(|| {
            refused("expected a loan of a channel, found one of a pool; call ready(), then Channel::send".into())
        })?;
        let ready = self.ready()?;
        Ok(ready.send(&end, Deadline::after(Duration::MAX))?)
    }
}

/// The place of a tensor of this name.
fn find(entries: &[Entry], name: &str) -> Result<usize, Error> {
    let place = entries.iter().position(|entry| entry.name == name);
    place.ok_or_else(|| Error::UnknownName { what: "tensor", name: name.into() })
}

fn taken(name: &str) -> Error {
    refused(format!("expected a tensor that is not taken out, found {name:?}"))
}

/// A filled message, for [`Channel::send`](crate::Channel::send). Clones are the same message.
#[derive(Clone, Debug)]
pub struct Ready {
    slot: Arc<UsedSlot>,
    texts: Arc<[u8]>,
}

impl Ready {
    /// The same message with other metadata.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for more than 128 KiB of metadata.
    pub fn with_metadata(&self, texts: &BTreeMap<String, String>) -> Result<Self, Error> {
        Ok(Self { slot: Arc::clone(&self.slot), texts: wire::encode_texts(texts)?.into() })
    }

    pub(super) fn is_of(&self, slots: &Arc<Slots>) -> bool {
        self.slot.is_of(slots)
    }

    pub(super) fn send(&self, end: &End, deadline: Deadline) -> Result<(), WaitError> {
        end.send(&self.slot, &self.texts, deadline)
    }
}

/// Tensors that another process sent through a [`Channel`](super::Channel).
///
/// Their memory is leased: it belongs to the sender, which uses it again once this message and all its tensors are
/// dropped. Nothing is copied. A drop never waits: if the socket is full because the sender reads nothing, the sender
/// learns of the drop at the next call of this end, such as [`flush_timeout`](super::Channel::flush_timeout).
#[derive(Debug)]
pub struct Message {
    entries: Arc<[Entry]>,
    texts: Texts,
    lease: Arc<Lease>,
}

impl Message {
    pub(super) fn new((entries, texts, lease): Taken) -> Self {
        Self { entries, texts, lease: Arc::new(lease) }
    }

    /// The names of the tensors, in the order of the sender.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(|entry| entry.name.as_str())
    }

    /// The metadata of the message: strings by their keys.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.texts
    }

    /// The bytes of all tensors.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.range.len()).sum()
    }

    /// A tensor, read-only, without a copy: class [`Shared`](dlbridge::Access::Shared), because the sender
    /// could still write to it. Read it by [`Tensor::view`].
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName).
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        self.lease.tensor(&self.entries[find(&self.entries, name)?])
    }

    /// A copy of a tensor in memory of this process: class [`Exclusive`](dlbridge::Access::Exclusive).
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName) or [`OutOfMemory`](Error::OutOfMemory).
    pub fn to_owned(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name)?.to_contiguous()
    }

    /// A copy of the tensors in a sealed file, without the metadata, for values that outlive the stream.
    ///
    /// # Errors
    ///
    /// Those of [`seal`](crate::seal).
    pub fn seal(&self) -> Result<SealedTensors, Error> {
        let tensors =
            self.entries.iter().map(|entry| Ok((&*entry.name, self.lease.tensor(entry)?)));
        let tensors = tensors.collect::<Result<Vec<_>, Error>>()?;
        seal(tensors.iter().map(|(name, tensor)| (*name, tensor)))
    }
}
