//! An end of a channel: a transport, the leases that the other end has, and those that it gave to this end.
//! Invariant: no lock is held while a call waits, and a drop waits for nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use dlbridge::{Error, Tensor};
use rustix::event::PollFlags;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;

use super::peer::Memory;
use super::reading::{Reader, Received};
use super::slots::{Given, MOST_SLOTS};
pub(super) use super::slots::{Slots, UsedSlot};
use super::transport::Transport;
use super::wire::{Texts, broken};
use super::writing::Writer;
use crate::fork::Owner;
use crate::header::Entry;
use crate::socket::wait;
use crate::wait::{Deadline, WaitError};
use crate::{lock, refused, system};

/// The longest sleep, because no descriptor shows that another thread has read what this one waits for.
const RECHECK: Duration = Duration::from_millis(20);
/// How long no byte is sent and no message received before both ends count as sending, and neither as receiving.
const STALLED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct End {
    transport: Transport,
    quota: usize,
    /// The process that uses this end; 0 before its first use. A forked child has a copy of it.
    owner: Owner,
    reader: Mutex<Reader>,
    writer: Mutex<Writer>,
    given: Given,
    /// Leases that have ended, of which the other end was not told yet.
    returns: Mutex<Vec<u64>>,
    /// Why this end closed the stream, if not for a frame.
    fault: OnceLock<Error>,
    /// Since when no byte was sent and no message received, and the numbers of both until then.
    still: Mutex<Option<(Instant, usize, usize)>>,
}

impl End {
    pub(super) fn new(socket: OwnedFd, quota: usize, is_private: bool) -> Self {
        // Datagrams are cut, and tell no end.
        let is_stream = socket_type(&socket).is_ok_and(|found| found == SocketType::STREAM);
        let fault = (!is_stream).then(|| {
            refused("expected a stream (SOCK_STREAM), found a socket of another type".into())
        });
        Self {
            transport: Transport::new(socket),
            quota,
            owner: Owner::default(),
            reader: Mutex::new(Reader::new(is_private, fault.clone())),
            writer: Mutex::new(Writer::new(fault)),
            given: Given::default(),
            returns: Mutex::default(),
            fault: OnceLock::new(),
            still: Mutex::default(),
        }
    }

    /// Both ends of a stream, in one process.
    pub(super) fn pair() -> Result<(Self, Self), Error> {
        let pair = UnixStream::pair().map_err(|error| system("socketpair", error))?;
        let end = |socket: UnixStream| Self::new(socket.into(), usize::MAX, false);
        Ok((end(pair.0), end(pair.1)))
    }

    /// Uses this end in this process, and in no other one from here on.
    fn use_here(&self) -> Result<(), Error> {
        if self.owner.claim() {
            return Ok(());
        }
        Err(refused(
            "expected the process that uses this end of the channel, found a child that was forked later; make a \
             channel for the child before it starts, and use one end of it there alone"
                .into(),
        ))
    }

    /// Sends a message. If the time ends after a part of it, the rest leaves with the next call.
    pub(super) fn send(
        &self,
        slot: &Arc<UsedSlot>,
        texts: &[u8],
        deadline: Deadline,
    ) -> Result<(), WaitError> {
        self.use_here()?;
        let lease = if slot.is_inline() { None } else { Some(self.give(slot)?) };
        let offer = |writer: &mut Writer| writer.offer(&self.transport, slot, lease, texts);
        if let Err(error) = self.write_until(deadline, offer) {
            if let Some(lease) = lease {
                self.given.take_back(lease);
            }
            return Err(error);
        }
        match self.flush_until(deadline) {
            Err(WaitError::Timeout | WaitError::Stalled(_)) => Ok(()),
            flushed => flushed,
        }
    }

    /// Waits until the socket has all that was sent, or the time is over.
    pub(super) fn flush_until(&self, deadline: Deadline) -> Result<(), WaitError> {
        self.use_here()?;
        self.write_until(deadline, |writer| writer.flush(&self.transport, &self.returns))
    }

    /// Writes until `work` is done, or the time is over.
    fn write_until(
        &self,
        deadline: Deadline,
        work: impl Fn(&mut Writer) -> Result<bool, Error>,
    ) -> Result<(), WaitError> {
        while !self.write(&work)? {
            self.wait_to_write(deadline)?;
        }
        Ok(())
    }

    /// Waits until the socket can be written, or for `RECHECK`. It reads too: the other end may wait for this one to read.
    fn wait_to_write(&self, deadline: Deadline) -> Result<(), WaitError> {
        let left = deadline.left(RECHECK);
        if left.is_zero() {
            return Err(WaitError::Timeout);
        }
        self.wait_for(PollFlags::OUT, left)?;
        self.check_movement()
    }

    /// Fails if two ends that send wait for each other: this end has no room for messages, and for long no thread has
    /// received one and the other end has taken no byte.
    fn check_movement(&self) -> Result<(), WaitError> {
        let reader = lock(&self.reader);
        let (sent, received) = (self.transport.sent(), reader.received);
        let (is_full, waiting) = (reader.is_full(), reader.waiting());
        drop(reader);
        let mut still = lock(&self.still);
        match *still {
            Some((since, ..)) if *still == Some((since, sent, received)) => {
                if since.elapsed() > STALLED && is_full {
                    return Err(WaitError::Stalled(waiting));
                }
            }
            _ => *still = Some((Instant::now(), sent, received)),
        }
        Ok(())
    }

    /// Gives the other end a lease of a slot.
    fn give(&self, slot: &Arc<UsedSlot>) -> Result<u64, Error> {
        self.given.give(slot, self.quota).or_else(|_| {
            // The other end may have returned some since.
            drop(self.read());
            self.given.give(slot, self.quota)
        })
    }

    /// Writes, then tells of leases that ended meanwhile. Whether the work is done.
    fn write(&self, work: impl FnOnce(&mut Writer) -> Result<bool, Error>) -> Result<bool, Error> {
        let written = lock(&self.writer).unless_over(work);
        if written.is_err() {
            // Nothing is told any more.
            lock(&self.returns).clear();
        }
        self.tell();
        written
    }

    /// Tells the other end of leases that ended, without waiting: from a drop, on any thread. A thread that writes tells of
    /// them when it has written.
    fn tell(&self) {
        while !lock(&self.returns).is_empty() {
            let mut writer = match self.writer.try_lock() {
                Ok(writer) => writer,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            let written = writer.unless_over(|writer| writer.flush(&self.transport, &self.returns));
            if !matches!(written, Ok(true)) {
                return;
            }
        }
    }

    /// Ends a lease of the other end's memory.
    fn end_lease(&self, lease: u64) {
        let mut returns = lock(&self.returns);
        if returns.len() < MOST_SLOTS {
            returns.push(lease);
            drop(returns);
            return self.tell();
        }
        drop(returns);
        // An honest maker has no more slots, and uses one again only after it has read that its lease has ended.
        let _ =
            self.fault.set(broken(format!("{MOST_SLOTS} ends of leases that it does not read")));
        self.transport.close();
    }

    /// Reads what has come.
    fn read(&self) -> MutexGuard<'_, Reader> {
        let mut reader = lock(&self.reader);
        reader.read(&self.transport, &self.given);
        reader
    }

    /// Reads, then waits until the socket can be read or has one of the events `more`, at most for `time`.
    fn wait_for(&self, more: PollFlags, time: Duration) -> Result<(), Error> {
        let mut events = more;
        events.set(PollFlags::IN, self.read().is_open());
        wait(&[(self.as_fd(), events)], time).map(drop)
    }

    /// Waits until a message or the end has come, or the time is over. Whether it has.
    pub(super) fn wait(&self, deadline: Deadline) -> Result<bool, Error> {
        self.use_here()?;
        loop {
            // Sends what the socket did not take before. Reading finds an error.
            let flushed = self.write(|writer| writer.flush(&self.transport, &self.returns));
            let is_sent = flushed.unwrap_or(true);
            let is_ready = self.read().is_ready();
            let left = deadline.left(RECHECK);
            if is_ready || left.is_zero() {
                return Ok(is_ready);
            }
            let events = if is_sent { PollFlags::empty() } else { PollFlags::OUT };
            self.wait_for(events, left)?;
        }
    }

    /// The next message that has come, or the end of the stream, if there is one.
    pub(super) fn take(self: &Arc<Self>) -> Option<Result<Option<Taken>, Error>> {
        if let Err(error) = self.use_here() {
            return Some(Err(error));
        }
        let mut reader = lock(&self.reader);
        if !reader.is_ready() {
            reader.read(&self.transport, &self.given);
        }
        let message = match (reader.take()?, self.fault.get()) {
            (Ok(None), Some(fault)) => Err(fault.clone()),
            (message, _) => message,
        };
        Some(message.map(|message| {
            let Received { entries, texts, memory, lease, .. } = message?;
            Some((entries, texts, Lease { memory, end: Arc::downgrade(self), number: lease }))
        }))
    }

    /// Reads what the other end has returned. Whether more may come.
    pub(super) fn collect(&self) -> bool {
        if !self.owner.is_here() {
            return false;
        }
        let reader = self.read();
        let is_open = reader.is_open();
        drop(reader);
        // All leases of an end that is gone have ended, although their returns may be behind messages without room here.
        if !is_open && self.transport.is_hung_up() {
            self.given.end();
        }
        is_open
    }

    /// How many leases the other end has.
    pub(super) fn leases(&self) -> usize {
        self.given.count().0
    }

    /// The slots that the other end has.
    pub(super) fn sent_slots(&self) -> Vec<u32> {
        if self.owner.is_here() { self.given.slots() } else { Vec::new() }
    }

    /// Fails if this end must receive messages before it can read which leases were returned.
    pub(super) fn check_inbox(&self) -> Result<(), Error> {
        if !self.owner.is_here() || self.leases() == 0 {
            return Ok(());
        }
        let reader = lock(&self.reader);
        if !reader.is_full() {
            return Ok(());
        }
        let waiting = reader.waiting();
        Err(refused(format!(
            "expected messages to be received before more are loaned, found {waiting} waiting: this end reads \
             which memory is free again when it has received them"
        )))
    }

    /// The leases of the other end, and the bytes of their slots.
    pub(super) fn kept(&self) -> (usize, usize) {
        // A lock of a process that was forked may be held for ever.
        if !self.owner.is_here() {
            return (0, 0);
        }
        drop(self.read());
        self.given.count()
    }

    /// Ends the stream, if this process uses this end. Otherwise another process may use it.
    pub(super) fn close(&self) {
        if self.owner.is_here() {
            self.transport.close();
        }
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.transport.as_fd()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A lock of a process that was forked may be held for ever.
        if self.owner.is_here() {
            // The other end may still read.
            self.given.end();
            // Copies of the descriptor, in children that were forked, do not keep the stream open.
            self.transport.close();
        }
    }
}

/// A message: its tensors, its metadata, and the lease of its memory.
pub(super) type Taken = (Arc<[Entry]>, Texts, Lease);

/// Keeps the memory of a message. It is dropped with the message and all its tensors, and the lease then ends.
#[derive(Debug)]
pub(super) struct Lease {
    memory: Memory,
    /// Weak, because dropping the end ends the stream even while messages are alive.
    end: Weak<End>,
    number: u64,
}

impl Lease {
    pub(super) fn tensor(self: &Arc<Self>, entry: &Entry) -> Result<Tensor, Error> {
        self.memory.tensor(Arc::clone(self), entry)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Memory::Slot(slot) = &self.memory else { return };
        slot.end_lease();
        // A child that is forked later has the message too, and ends no lease.
        if let Some(end) = self.end.upgrade().filter(|end| end.owner.is_here()) {
            end.end_lease(self.number);
        }
    }
}

/// Waits until one of the sockets can be read, at most for `time`.
pub(super) fn readable(ends: &[&Arc<End>], time: Duration) -> Result<(), Error> {
    let sockets: Vec<_> = ends.iter().map(|end| (end.as_fd(), PollFlags::IN)).collect();
    wait(&sockets, time).map(drop)
}
