//! A message that was received.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dlbridge::{ArcTensor, Error, Tensor};

use super::api::lock;
#[cfg(any(target_os = "linux", target_os = "android"))]
use super::lease::Lease;
use super::wire::Entry;
use crate::{SealedTensors, seal};

/// Tensors that another process sent through a [`Channel`](super::Channel).
///
/// Where the channel shares memory, theirs is leased: it belongs to the sender, which uses it again once this message
/// and all its tensors are dropped. Nothing is copied.
#[derive(Debug)]
pub struct Message {
    entries: Arc<[Entry]>,
    memory: Memory,
}

/// Where the tensors of a message are.
#[derive(Debug)]
enum Memory {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Leased(Arc<Lease>),
    /// In memory of this process.
    Own(Vec<Mutex<Own>>),
}

/// A tensor that came as bytes.
#[derive(Debug)]
enum Own {
    Exclusive(Option<Tensor>),
    Shared(ArcTensor),
}

impl Own {
    /// A handle that is read-only. Its memory is never exclusive again.
    fn share(&mut self) -> Tensor {
        if let Self::Exclusive(tensor) = self {
            let tensor = tensor.take().expect("there until it is shared");
            // Not `Frozen`: a consumer may ignore that it is read-only.
            *self = Self::Shared(Tensor::from(tensor.into_shared()).into_frozen());
        }
        let Self::Shared(tensor) = self else { unreachable!("shared above") };
        tensor.clone().into()
    }
}

impl Message {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn leased(entries: Arc<[Entry]>, lease: Lease) -> Self {
        Self { entries, memory: Memory::Leased(Arc::new(lease)) }
    }

    /// One tensor for each entry.
    pub(super) fn own(entries: Vec<Entry>, tensors: Vec<Tensor>) -> Self {
        let tensors = tensors.into_iter().map(|tensor| Mutex::new(Own::Exclusive(Some(tensor))));
        Self { entries: entries.into(), memory: Memory::Own(tensors.collect()) }
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
        let place = self.entries.iter().position(|entry| entry.name == name);
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        self.tensor_at(place.ok_or_else(unknown)?)
    }

    fn tensor_at(&self, place: usize) -> Result<Tensor, Error> {
        match &self.memory {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Memory::Leased(lease) => lease.tensor(&self.entries[place]),
            Memory::Own(tensors) => Ok(lock(&tensors[place]).share()),
        }
    }

    /// A copy of a tensor in memory of this process: class [`Exclusive`](dlbridge::Access::Exclusive).
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName) or [`OutOfMemory`](Error::OutOfMemory).
    pub fn to_owned(&self, name: &str) -> Result<Tensor, Error> {
        self.tensor(name)?.to_contiguous()
    }

    /// All tensors with their names, of class [`Exclusive`](dlbridge::Access::Exclusive). They are copied out of leased memory. Those that
    /// came as bytes are in memory of this process: only those that [`tensor`](Self::tensor) has shared are copied.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory).
    pub fn into_tensors(self) -> Result<Vec<(String, Tensor)>, Error> {
        let exclusive = |place: usize| match &self.memory {
            Memory::Own(tensors) => match &mut *lock(&tensors[place]) {
                Own::Exclusive(tensor) => tensor.take(),
                Own::Shared(_) => None,
            },
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Memory::Leased(_) => None,
        };
        let tensor =
            |place| exclusive(place).map_or_else(|| self.tensor_at(place)?.to_contiguous(), Ok);
        let tensors = (0..self.entries.len()).map(tensor).collect::<Result<Vec<_>, Error>>()?;
        let names = self.entries.iter().map(|entry| entry.name.clone());
        Ok(names.zip(tensors).collect())
    }

    /// The tensors in a sealed file, for values that outlive the stream: class [`Frozen`](dlbridge::Access::Frozen).
    /// The sender gives up the memory, so that nothing is copied. Waits at most so long for it, since it answers only when it loans,
    /// sends or receives: `None` then, and the next call waits on.
    ///
    /// The values are copied where they came inline or as bytes, where the sender is gone, where this end has kept as many bytes as
    /// its quota or the limit of the sender's pool, and where the kernel does not seal memory that another process maps (before
    /// Linux 6.7).
    ///
    /// # Errors
    ///
    /// Those of [`seal`](crate::seal) and [`SealedTensors::try_from`].
    pub fn keep(&self, timeout: Duration) -> Result<Option<SealedTensors>, Error> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Memory::Leased(lease) = &self.memory {
            match lease.keep(timeout)? {
                Some(Some(file)) => return SealedTensors::try_from(file).map(Some),
                Some(None) => {}
                None => return Ok(None),
            }
        }
        let _ = timeout;
        let tensors = self.names().map(|name| Ok((name, self.tensor(name)?)));
        let tensors = tensors.collect::<Result<Vec<_>, Error>>()?;
        seal(tensors.iter().map(|(name, tensor)| (*name, tensor))).map(Some)
    }
}
