//! Memory that is loaned to be filled, and what is sent of it.

use std::sync::Arc;

use dlbridge::{DType, Error, Tensor};

use super::api::{Channel, lock};
use super::buffer::{Buffer, Home, Lent};
#[cfg(any(target_os = "linux", target_os = "android"))]
use super::held::Held;
use super::wire::{self, Entry};
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::raw::Region;
use crate::refused;

/// Memory for the tensors of a message, to be filled and sent. Dropping it frees the memory.
#[derive(Debug)]
pub struct Loan {
    /// Dropped before the memory, which is free again if there is none. `None` where a tensor has it.
    parts: Vec<Option<Part>>,
    memory: Memory,
    channel: Option<Channel>,
}

/// Where the tensors of a loan are.
#[derive(Debug)]
enum Memory {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Slot(Held),
    Buffers {
        entries: Vec<Entry>,
        description: Vec<u8>,
        homes: Vec<Home>,
    },
}

/// The memory of one tensor.
#[derive(Debug)]
enum Part {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Slot(Region),
    Buffer(Lent),
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Self::Slot(region) => region.as_mut(),
            Self::Buffer(lent) => lent.as_mut(),
        }
    }
}

impl Loan {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn in_slot(mut held: Held) -> Result<Self, Error> {
        let parts = held.regions(|region| Some(Part::Slot(region)))?;
        Ok(Self { parts, memory: Memory::Slot(held), channel: None })
    }

    /// In buffers of this process, for values that travel as bytes.
    pub(super) fn by_bytes(tensors: &[(&str, DType, &[i64])], limit: usize) -> Result<Self, Error> {
        let (entries, description, len) = wire::plan(tensors)?;
        if len > limit {
            return Err(wire::too_large(limit, len));
        }
        let (mut parts, mut homes) = (Vec::new(), Vec::new());
        for entry in &entries {
            let (lent, home) = Lent::new(Buffer::zeroed(entry.len)?);
            parts.push(Some(Part::Buffer(lent)));
            homes.push(home);
        }
        Ok(Self { parts, memory: Memory::Buffers { entries, description, homes }, channel: None })
    }

    fn entries(&self) -> &[Entry] {
        match &self.memory {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Memory::Slot(held) => &held.plan.entries,
            Memory::Buffers { entries, .. } => entries,
        }
    }

    fn find(&self, name: &str) -> Result<usize, Error> {
        let place = self.entries().iter().position(|entry| entry.name == name);
        place.ok_or_else(|| Error::UnknownName { what: "tensor", name: name.into() })
    }

    /// The names of the tensors.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries().iter().map(|entry| entry.name.as_str())
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](dlbridge::Access::Exclusive). It has values of
    /// an earlier message until then. Dropping it leaves what was written in the message.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = self.find(name)?;
        let part = self.parts[place].take();
        let part = part.ok_or_else(|| {
            refused(format!("expected a tensor that is not taken out, found {name:?}"))
        })?;
        let entry = &self.entries()[place];
        Tensor::builder(part).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
    }

    /// Fills a tensor with a copy of another one of its dtype and shape, of any strides and class.
    ///
    /// # Errors
    ///
    /// Another size in bytes, memory that the host cannot read, and those of [`tensor`](Self::tensor).
    pub fn copy_from(&mut self, name: &str, source: &Tensor) -> Result<(), Error> {
        let place = self.find(name)?;
        let part = self.parts[place].as_mut();
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        source.copy_to_bytes(part.ok_or_else(unknown)?.as_mut())
    }

    /// How many tensors of [`tensor`](Self::tensor) are alive: sending fails until there is none.
    #[must_use]
    pub fn alive(&self) -> usize {
        let alive = match &self.memory {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Memory::Slot(held) => held.alive(),
            Memory::Buffers { homes, .. } => {
                homes.iter().filter(|home| lock(home).is_none()).count()
            }
        };
        alive - self.parts.iter().flatten().count()
    }

    /// Ends filling: the message can be sent, by as many channels of the pool as there are.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of [`tensor`](Self::tensor) is alive. The loan is
    /// dropped then.
    pub fn ready(mut self) -> Result<Ready, Error> {
        self.parts.clear();
        let alive = self.alive();
        if alive > 0 {
            return Err(refused(format!(
                "expected that all tensors of the loan are dropped, found {alive} alive"
            )));
        }
        Ok(Ready(match self.memory {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Memory::Slot(held) => Filled::Slot(Arc::new(held)),
            Memory::Buffers { description, homes, .. } => {
                let buffers = homes.iter().filter_map(|home| lock(home).take()).collect();
                Filled::Buffers(Arc::new(Buffers { description, buffers }))
            }
        }))
    }

    /// Sends the message by the channel that loaned it.
    ///
    /// # Errors
    ///
    /// As [`ready`](Self::ready) and [`Channel::send`]; [`Refused`](Error::Refused) for a loan of a
    /// [`Pool`](super::Pool), which names no channel.
    pub fn send(mut self) -> Result<(), Error> {
        let channel = self.channel.take().ok_or_else(|| {
            refused("expected a loan of a channel, found one of a pool; call ready(), then Channel::send".into())
        })?;
        channel.send(&self.ready()?)
    }

    pub(super) fn of(self, channel: Channel) -> Self {
        Self { channel: Some(channel), ..self }
    }
}

/// A message that is filled, for [`Channel::send`]. Clones are the same message.
#[derive(Clone, Debug)]
pub struct Ready(pub(super) Filled);

#[derive(Clone, Debug)]
pub(super) enum Filled {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Slot(Arc<Held>),
    Buffers(Arc<Buffers>),
}

/// What travels as bytes.
#[derive(Debug)]
pub(super) struct Buffers {
    pub(super) description: Vec<u8>,
    pub(super) buffers: Vec<Buffer>,
}
