//! A message that was received.

use std::collections::BTreeMap;
use std::sync::Arc;

use dlbridge::{Error, Tensor};

use super::end::{Lease, Taken};
use super::wire::{Entry, Texts};
use crate::{SealedTensors, seal};

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
        self.entries.iter().map(|entry| entry.len).sum()
    }

    /// A tensor, read-only, without a copy: class [`Shared`](dlbridge::Access::Shared), because the sender
    /// could still write to it. Read it by [`Tensor::view`].
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName).
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        self.lease.tensor(entry.ok_or_else(unknown)?)
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
