//! The half of a channel that reads frames: messages, and the returns of leases.
//! Invariant: an error ends the stream, and what was received before it stays.

use std::collections::{HashMap, VecDeque};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, TryLockError, Weak};

use dlbridge::{DType, Error, Tensor};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown,
};

use super::api::lock;
use super::end::Inner;
use super::raw::{Memory, Pages, PeerSlot};
use super::ring::Counter;
use super::wire::{self, Entry, HEAD, Head, Kind, broken};
use super::writing::File;
use crate::{refused, system};

/// Messages that wait to be received: more stay in the socket.
const INBOX: usize = 256;
/// Slots of the other end, and descriptors that no frame has named yet.
const MOST_SLOTS: usize = 4096;
const MOST_FILES: usize = 64;
/// How often the socket is read for a descriptor that a frame in the ring names: more than it holds.
const MOST_WAKES: usize = 4096;
/// How many bytes one call reads.
const READ: usize = 64 << 10;

/// The answer to a frame that asks to keep a lease: a descriptor, or none where the receiver has to copy.
pub(super) type Answer = OnceLock<Option<OwnedFd>>;

#[derive(Default, Debug)]
pub(super) struct Reading {
    /// Its first `filled` bytes were read. The rest is not cleared again for each call.
    buffer: Vec<u8>,
    filled: usize,
    pages: Pages,
    pub(super) files: VecDeque<OwnedFd>,
    pub(super) slots: HashMap<u32, Arc<PeerSlot>>,
    pub(super) inbox: VecDeque<(Arc<[Entry]>, Memory, u64)>,
    /// The last description, the size that it was read for, and what it says.
    last: Option<(Vec<u8>, usize, Arc<[Entry]>)>,
    /// Leases that this end wants to keep.
    pub(super) asked: HashMap<u64, Weak<Answer>>,
    /// How the socket ended. The ring may have frames still.
    ended: Option<Result<(), Error>>,
    /// Why nothing more comes: the end of the stream, or an error.
    pub(super) end: Option<Result<(), Error>>,
}

impl Reading {
    /// What a description says of so many bytes. Most messages of a stream have that of the one before.
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

fn unnamed() -> Error {
    broken("descriptors without frames".into())
}

impl Inner {
    /// Reads what has come, unless another thread does.
    pub(super) fn read_ready(&self) {
        match self.reading.try_lock() {
            Ok(mut reading) => self.read_all(&mut reading),
            Err(TryLockError::Poisoned(poisoned)) => self.read_all(&mut poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Reads what has come, also beside the ring.
    pub(super) fn read_all(&self, reading: &mut Reading) {
        // A peer that sends for ever is not read for ever.
        let _ = (0..MOST_FILES).find(|_| !self.drain(reading));
        self.read(reading);
    }

    /// Takes what comes beside the ring from the socket: descriptors, bytes that wake, the end. Whether there may be
    /// more.
    pub(super) fn drain(&self, reading: &mut Reading) -> bool {
        // Further descriptors stay in the socket until the frames of these are read, for which the inbox needs room.
        if !self.rings.reads.load(Ordering::Relaxed)
            || reading.ended.is_some()
            || reading.files.len() >= MOST_FILES
        {
            return false;
        }
        let ended = match self.read_socket(&mut reading.files, &mut [0; 64]) {
            Ok(None) => return false,
            Ok(Some(0)) => Ok(()),
            Err(error) => Err(error),
            Ok(Some(_)) => {
                // Another thread may have asked to be woken.
                if self.rings.sleepers.load(Ordering::Relaxed) > 0 {
                    self.rings.ask(Counter::Bytes);
                }
                return true;
            }
        };
        reading.ended = Some(ended);
        false
    }

    /// Reads frames until the socket is empty or the inbox full. An error ends the stream.
    pub(super) fn read(&self, reading: &mut Reading) {
        while reading.end.is_none() && reading.inbox.len() < INBOX {
            let end = match self.read_once(reading) {
                Ok(Some(0)) if reading.filled == 0 => Ok(()),
                Ok(Some(0)) => Err(broken("a frame that ends early".into())),
                Ok(Some(read)) => match self.parse(reading) {
                    // The next call finds what comes after a message: no call asks whether there is more.
                    Ok(()) if read < READ && !reading.inbox.is_empty() => return,
                    Ok(()) => continue,
                    Err(error) => Err(error),
                },
                Ok(None) => return,
                Err(error) => Err(error),
            };
            reading.end = Some(end);
            reading.files.clear();
            self.rings.is_over.store(true, Ordering::Relaxed);
            let _ = shutdown(&self.socket, Shutdown::Both);
            // Nothing is returned any more. Messages that the other end still has keep their values, so no slot
            // of theirs is used again.
            let given = std::mem::take(&mut *lock(&self.given));
            given.leases.values().for_each(|(held, _)| held.retire());
        }
    }

    /// Whether the socket is read: there is room in the inbox, and it is not closed.
    pub(super) fn is_reading(&self) -> bool {
        let reading = lock(&self.reading);
        reading.end.is_none() && reading.inbox.len() < INBOX
    }

    pub(super) fn check_inbox(&self) -> Result<(), Error> {
        let waiting = lock(&self.reading).inbox.len();
        if waiting < INBOX {
            return Ok(());
        }
        Err(refused(format!(
            "expected messages to be received before more are loaned, found {waiting} waiting: the \
             returns of leases are behind them"
        )))
    }

    /// The number of bytes that were read, 0 at the end of the stream; `None` if there are none yet.
    fn read_once(&self, reading: &mut Reading) -> Result<Option<usize>, Error> {
        let start = reading.filled;
        if reading.buffer.len() < start + READ {
            reading.buffer.resize(start + READ, 0);
        }
        let bytes = &mut reading.buffer[start..start + READ];
        let read = if self.rings.reads.load(Ordering::Relaxed) {
            let read = self.rings.read(bytes)?;
            if read > 0 {
                self.wake(Counter::Room);
            }
            match &reading.ended {
                Some(ended) if read == 0 => Some(ended.clone().map(|()| 0)?),
                None if read == 0 && reading.files.len() >= MOST_FILES => return Err(unnamed()),
                _ => (read > 0).then_some(read),
            }
        } else {
            self.read_socket(&mut reading.files, bytes)?
        };
        reading.filled += read.unwrap_or_default();
        Ok(read)
    }

    fn read_socket(
        &self,
        files: &mut VecDeque<OwnedFd>,
        bytes: &mut [u8],
    ) -> Result<Option<usize>, Error> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [IoSliceMut::new(bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = loop {
            match recvmsg(&self.socket, &mut bytes, &mut control, flags) {
                Err(Errno::INTR) => {}
                received => break received,
            }
        };
        let received = match received {
            Err(Errno::AGAIN) => return Ok(None),
            // The other end was closed with frames that it had not read.
            Err(Errno::CONNRESET) => return Ok(Some(0)),
            received => received.map_err(|error| system("recvmsg", error))?,
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(found) = message {
                files.extend(found);
            }
        }
        if received.flags.contains(ReturnFlags::CTRUNC) {
            return Err(refused(
                "expected room for a descriptor, found none: the process is at its limit of descriptors \
                 (ulimit -n); close some, or raise the limit"
                    .into(),
            ));
        }
        if files.len() > MOST_FILES {
            return Err(unnamed());
        }
        Ok(Some(received.bytes))
    }

    /// Takes whole frames from the buffer.
    fn parse(&self, reading: &mut Reading) -> Result<(), Error> {
        let mut buffer = std::mem::take(&mut reading.buffer);
        let mut rest = &buffer[..reading.filled];
        while let Some(head) = rest.first_chunk::<HEAD>() {
            let head = Head::decode(head, false)?;
            let Some((frame, next)) = rest.split_at_checked(head.len()) else { break };
            // What follows a switch wakes this end: it is awake.
            rest = if head.kind == Kind::Switch { &[] } else { next };
            let (description, values) = frame[HEAD..].split_at(head.described);
            self.take(reading, head, description, values)?;
        }
        let left = rest.len();
        buffer.copy_within(reading.filled - left..reading.filled, 0);
        (reading.buffer, reading.filled) = (buffer, left);
        Ok(())
    }

    fn take(
        &self,
        reading: &mut Reading,
        head: Head,
        description: &[u8],
        values: &[u8],
    ) -> Result<(), Error> {
        match head.kind {
            Kind::Inline => {
                let entries = reading.describe(description, values.len())?;
                let size = [values.len() as i64];
                let copy = Tensor::from_bytes(DType::U8, &size, values)?;
                reading.inbox.push_back((entries, Memory::Copy(copy), 0));
            }
            Kind::Lease | Kind::LeaseNew => {
                if head.kind == Kind::LeaseNew {
                    let file = self.take_file(reading);
                    let file = file.ok_or_else(|| broken("a slot without a descriptor".into()))?;
                    let slot = Arc::new(PeerSlot::open(&file, self.is_private)?);
                    let is_known = reading.slots.insert(head.slot, slot).is_some();
                    if is_known || reading.slots.len() > MOST_SLOTS {
                        return Err(broken(format!("slot {} once more, or too many", head.slot)));
                    }
                }
                let slot = reading.slots.get(&head.slot).cloned();
                let slot = slot.ok_or_else(|| broken(format!("slot {}, unknown", head.slot)))?;
                let entries = reading.describe(description, slot.room())?;
                if !slot.lease(&mut reading.pages) {
                    return Err(broken(format!("slot {}, whose lease has not ended", head.slot)));
                }
                let memory = Memory::Slot(slot);
                reading.inbox.push_back((entries, memory, head.lease));
            }
            Kind::Bytes => return Err(wire::mixed(false)),
            Kind::Return => {
                let held = lock(&self.given).take_back(head.lease);
                held.ok_or_else(|| broken(format!("the end of lease {}, unknown", head.lease)))?;
            }
            Kind::Forget => drop(reading.slots.remove(&head.slot)),
            Kind::Keep => {
                let limit = self.quota.min(self.pool.limit());
                let found = lock(&self.given).keep(head.lease, limit);
                let (held, is_allowed) = found.ok_or_else(|| {
                    broken(format!("lease {} to keep, unknown or kept", head.lease))
                })?;
                let (kind, file) = if is_allowed && held.keep() {
                    (Kind::Kept, Some(held as Arc<dyn File>))
                } else {
                    (Kind::NotKept, None)
                };
                self.tell(kind, head.lease, file);
            }
            Kind::Kept | Kind::NotKept => {
                let asked = reading.asked.remove(&head.lease);
                let asked = asked.ok_or_else(|| broken("an answer without a question".into()))?;
                let file = (head.kind == Kind::Kept).then(|| self.take_file(reading));
                let file = file.map(|file| file.ok_or_else(|| broken("no descriptor".into())));
                let file = file.transpose()?;
                let _ = asked.upgrade().map(|answer| answer.set(file));
            }
            Kind::Ring => {
                let file = self.take_file(reading);
                let file = file.ok_or_else(|| broken("a ring without a descriptor".into()))?;
                self.rings.accept(PeerSlot::open(&file, false)?)?;
                self.offer();
                self.tell(Kind::Forget, 0, None);
            }
            Kind::Switch => {
                if !self.rings.is_there() || self.rings.reads.swap(true, Ordering::Relaxed) {
                    return Err(broken("a switch without rings, or one more".into()));
                }
            }
        }
        Ok(())
    }

    /// The next descriptor that came: beside a frame, or before it where frames are in a ring.
    fn take_file(&self, reading: &mut Reading) -> Option<OwnedFd> {
        // A peer that wakes this end for ever is not read for ever.
        let _ = (0..MOST_WAKES).find(|_| !reading.files.is_empty() || !self.drain(reading));
        reading.files.pop_front()
    }
}
