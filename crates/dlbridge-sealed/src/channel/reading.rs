//! The half of an end that reads: messages, and the returns of leases. It has no way to send.
//! Invariant: a frame of another process costs bounded time and memory.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use dlbridge::{DType, Error, Tensor};

use super::peer::{Memory, Pages, PeerSlot};
use super::slots::{Given, MOST_SLOTS};
use super::transport::{Incoming, READ, Read, Transport};
use super::wire::{self, Entry, Frame, Head, Kind, Texts, broken};
use crate::lock;

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
    received: usize,
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
    /// The bytes of all slots.
    mapped: usize,
    pages: Pages,
    /// The last description, the size of its message, and its tensors.
    last: Option<(Vec<u8>, usize, Arc<[Entry]>)>,
}

impl Reader {
    /// Reads nothing if there is a fault.
    pub(super) fn new(is_private: bool, fault: Option<Error>) -> Self {
        let (incoming, inbox) = (Incoming::default(), VecDeque::new());
        let peers = Peers { is_private, slots: HashMap::new(), mapped: 0, pages: None, last: None };
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

    /// How many messages were received so far.
    pub(super) fn received(&self) -> usize {
        self.received
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
    pub(super) fn read(&mut self, transport: &Transport, given: &Mutex<Given>) {
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
            let slots = lock(given).end();
            drop(slots);
        }
    }

    fn read_once(&mut self, transport: &Transport, given: &Mutex<Given>) -> Result<Read, Error> {
        let Self { incoming, peers, inbox, nbytes, .. } = self;
        let read = transport.read(incoming)?;
        if read == Read::End && !incoming.is_between_frames() {
            return Err(broken("a frame that ends early".into()));
        }
        incoming.each_frame(|frame, files| {
            if frame.head.kind == Kind::Return {
                return take_back(given, frame.head.lease);
            }
            if let Some(message) = peers.take(frame, files)? {
                *nbytes += message.nbytes;
                inbox.push_back(message);
            }
            Ok(())
        })?;
        Ok(read)
    }
}

/// Ends a lease that the other end had.
fn take_back(given: &Mutex<Given>, lease: u64) -> Result<(), Error> {
    let mut locked = lock(given);
    let (slot, is_over) = (locked.take_back(lease), locked.is_over());
    drop(locked);
    if slot.is_some() || is_over {
        return Ok(());
    }
    Err(broken(format!("the end of lease {lease}, unknown")))
}

impl Peers {
    /// The message of a frame, if it has one. `take_back` handles frames that end leases.
    fn take(
        &mut self,
        frame: Frame<'_>,
        files: &mut VecDeque<OwnedFd>,
    ) -> Result<Option<Received>, Error> {
        let Frame { head: Head { kind, slot, lease, .. }, values, .. } = frame;
        match kind {
            Kind::Forget => {
                let gone = self.slots.remove(&slot);
                self.mapped -= gone.map_or(0, |gone| gone.room());
                return Ok(None);
            }
            Kind::Inline => {
                let size = [values.len() as i64];
                let copy = Tensor::from_bytes(DType::U8, &size, values)?;
                return self.message(frame, values.len(), 0, Memory::Copy(copy)).map(Some);
            }
            Kind::LeaseNew => self.open(slot, files)?,
            Kind::Lease | Kind::Return => {}
        }
        let found = self.slots.get(&slot).cloned();
        let found = found.ok_or_else(|| broken(format!("slot {slot}, unknown")))?;
        let memory = Memory::Slot(Arc::clone(&found));
        let message = self.message(frame, found.room(), lease, memory)?;
        if !found.lease(&mut self.pages) {
            return Err(broken(format!("slot {slot}, whose lease has not ended")));
        }
        Ok(Some(message))
    }

    /// Maps a slot whose descriptor came with the frame, or before it.
    fn open(&mut self, number: u32, files: &mut VecDeque<OwnedFd>) -> Result<(), Error> {
        let file = files.pop_front();
        let file = file.ok_or_else(|| broken("a slot without a descriptor".into()))?;
        if self.slots.contains_key(&number) {
            return Err(broken(format!("slot {number} once more")));
        }
        let slot = PeerSlot::open(&file, self.is_private)?;
        self.mapped = self.mapped.saturating_add(slot.room());
        self.slots.insert(number, Arc::new(slot));
        if self.slots.len() > MOST_SLOTS || self.mapped > MOST_MAPPED {
            let (count, nbytes) = (self.slots.len(), self.mapped);
            return Err(broken(format!("{count} slots of {nbytes} bytes, which are too many")));
        }
        Ok(())
    }

    fn message(
        &mut self,
        frame: Frame<'_>,
        size: usize,
        lease: u64,
        memory: Memory,
    ) -> Result<Received, Error> {
        let entries = self.describe(frame.description, size)?;
        let texts = wire::decode_texts(frame.texts)?;
        let nbytes =
            frame.values.len() + frame.texts.len() + ENTRY * (1 + entries.len() + texts.len());
        Ok(Received { entries, texts, memory, lease, nbytes })
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
