//! The half of an end that reads: messages, and the returns of leases. It has no way to send.
//! Invariant: a frame of another process costs bounded time and memory.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use dlbridge::{DType, Error, Tensor};

use super::peer::{Memory, Pages, PeerSlot};
use super::slots::{Given, MOST_SLOTS};
use super::transport::{Incoming, READ, Read, Transport};
use super::wire::{self, Frame, Head, Kind, Texts, broken};
use crate::header::Entry;

/// The limits of the inbox in messages and in bytes, above which the socket is not read. The last read may exceed them by
/// the messages in 64 KiB, about 2,000 at most.
const INBOX: usize = 256;
const INBOX_BYTES: usize = 8 << 20;
/// About how many bytes a tensor of a message needs beside its values.
const ENTRY: usize = 160;
/// The most bytes of the slots of the other end that this process maps.
const MOST_MAPPED: usize = isize::MAX as usize >> 16;
/// How often one call reads the socket: a peer that sends for ever is not read for ever.
const READS: usize = 64;

#[derive(Debug)]
pub(super) struct Reader {
    incoming: Incoming,
    peers: Peers,
    inbox: VecDeque<Received>,
    nbytes: usize,
    /// How many messages were received.
    pub(super) received: usize,
    /// Why nothing more comes: the end of the stream, or an error.
    end: Option<Result<(), Error>>,
}

/// A message that was read and not received yet.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) entries: Arc<[Entry]>,
    pub(super) texts: Texts,
    pub(super) memory: Memory,
    pub(super) lease: u64,
    /// The bytes that it needs in the inbox, about.
    nbytes: usize,
}

/// The slots of the other end.
#[derive(Debug)]
struct Peers {
    is_private: bool,
    slots: HashMap<u32, Arc<PeerSlot>>,
    pages: Pages,
    /// The last description, the size of its message, and its tensors.
    last: Option<(Vec<u8>, usize, Arc<[Entry]>)>,
}

impl Reader {
    /// Reads nothing if there is a fault.
    pub(super) fn new(is_private: bool, fault: Option<Error>) -> Self {
        let (incoming, inbox) = (Incoming::default(), VecDeque::new());
        let peers = Peers { is_private, slots: HashMap::new(), pages: None, last: None };
        Self { incoming, peers, inbox, nbytes: 0, received: 0, end: fault.map(Err) }
    }

    pub(super) fn is_full(&self) -> bool {
        self.inbox.len() >= INBOX || self.nbytes >= INBOX_BYTES
    }

    /// Whether the socket is read.
    pub(super) fn is_open(&self) -> bool {
        self.end.is_none() && !self.is_full()
    }

    /// How many messages wait.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.len()
    }

    pub(super) fn is_ready(&self) -> bool {
        self.end.is_some() || !self.inbox.is_empty()
    }

    /// The next message that was read, or the end after the last one.
    pub(super) fn take(&mut self) -> Option<Result<Option<Received>, Error>> {
        let Some(message) = self.inbox.pop_front() else {
            return self.end.clone().map(|end| end.map(|()| None));
        };
        self.nbytes -= message.nbytes;
        self.received += 1;
        Some(Ok(Some(message)))
    }

    /// Reads what has come. An error ends the stream, and what was received before it stays.
    pub(super) fn read(&mut self, transport: &Transport, given: &Given) {
        for _ in 0..READS {
            if !self.is_open() {
                return;
            }
            let end = match self.read_once(transport, given) {
                // The next call finds what comes after a message: no call asks whether there is more.
                Ok(Read::Bytes(read)) if read == READ || self.inbox.is_empty() => continue,
                Ok(Read::Bytes(_) | Read::Nothing) => return,
                Ok(Read::End) => Ok(()),
                Err(error) => Err(error),
            };
            self.end = Some(end);
            self.incoming = Incoming::default();
            self.peers.slots.clear();
            transport.close();
            given.end();
        }
    }

    fn read_once(&mut self, transport: &Transport, given: &Given) -> Result<Read, Error> {
        let Self { incoming, peers, inbox, nbytes, .. } = self;
        let read = transport.read(incoming)?;
        if read == Read::End && !incoming.is_between_frames() {
            return Err(broken("a frame that ends early".into()));
        }
        incoming.each_frame(|frame, files| {
            let Head { kind, slot, lease, .. } = frame.head;
            match kind {
                Kind::Return if given.take_back(lease) => {}
                Kind::Return => return Err(broken(format!("the end of lease {lease}, unknown"))),
                Kind::Forget => drop(peers.slots.remove(&slot)),
                Kind::Inline | Kind::Lease | Kind::LeaseNew => {
                    let message = peers.take(frame, files)?;
                    *nbytes += message.nbytes;
                    inbox.push_back(message);
                }
            }
            Ok(())
        })?;
        Ok(read)
    }
}

impl Peers {
    /// The message of a frame.
    fn take(&mut self, frame: Frame<'_>, files: &mut VecDeque<OwnedFd>) -> Result<Received, Error> {
        let Frame { head: Head { kind, slot: number, .. }, values, .. } = frame;
        if kind == Kind::Inline {
            let copy = Tensor::from_bytes(DType::U8, [values.len() as i64], values)?;
            return self.message(frame, values.len(), Memory::Copy(copy));
        }
        if kind == Kind::LeaseNew {
            self.open(number, files)?;
        }
        let slot = self.slots.get(&number).cloned();
        let slot = slot.ok_or_else(|| broken(format!("slot {number}, unknown")))?;
        let message = self.message(frame, slot.room(), Memory::Slot(Arc::clone(&slot)))?;
        if !slot.lease(&mut self.pages) {
            return Err(broken(format!("slot {number}, whose lease has not ended")));
        }
        Ok(message)
    }

    /// Maps a slot whose descriptor came with the frame, or before it.
    fn open(&mut self, number: u32, files: &mut VecDeque<OwnedFd>) -> Result<(), Error> {
        let file = files.pop_front();
        let file = file.ok_or_else(|| broken("a slot without a descriptor".into()))?;
        if self.slots.contains_key(&number) {
            return Err(broken(format!("slot {number} once more")));
        }
        let slot = PeerSlot::open(&file, self.is_private)?;
        self.slots.insert(number, Arc::new(slot));
        let rooms = self.slots.values().map(|slot| slot.room());
        let (count, nbytes) = (self.slots.len(), rooms.fold(0, usize::saturating_add));
        if count > MOST_SLOTS || nbytes > MOST_MAPPED {
            return Err(broken(format!("{count} slots of {nbytes} bytes, which are too many")));
        }
        Ok(())
    }

    fn message(
        &mut self,
        frame: Frame<'_>,
        size: usize,
        memory: Memory,
    ) -> Result<Received, Error> {
        let entries = self.describe(frame.description, size)?;
        let texts = wire::decode_texts(frame.texts)?;
        let nbytes =
            frame.values.len() + frame.texts.len() + ENTRY * (1 + entries.len() + texts.len());
        Ok(Received { entries, texts, memory, lease: frame.head.lease, nbytes })
    }

    /// The tensors of a description, in a message of `size` bytes. The last ones are kept, because most messages of a
    /// stream have the description of the one before.
    fn describe(&mut self, description: &[u8], size: usize) -> Result<Arc<[Entry]>, Error> {
        if let Some((last, enough, entries)) = &self.last {
            if last == description && *enough <= size {
                return Ok(Arc::clone(entries));
            }
        }
        let entries: Arc<[Entry]> = wire::describe(description, size)?.into();
        self.last = Some((description.to_vec(), size, Arc::clone(&entries)));
        Ok(entries)
    }
}
