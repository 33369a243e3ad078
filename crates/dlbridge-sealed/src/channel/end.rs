//! An end that shares memory: a socket, the slots that the other end has, and those that it gave.
//! Invariant: no lock is held while a call waits, and a drop waits for nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{Shutdown, shutdown};

use super::api::{End, left, lock};
use super::connection::wait;
use super::lease::Lease;
use super::loan::{Filled, Loan, Ready};
use super::message::Message;
use super::pool::{Pool, TICK};
use super::reading::{Answer, Reading};
use super::ring::{Counter, Rings, soon};
use super::wire::{Head, Kind};
use super::writing::{Given, Sent, Writing};
use crate::{refused, system};

/// An end that shares the memory of its messages with the other one.
#[derive(Debug)]
pub(super) struct Shared(Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) socket: OwnedFd,
    pub(super) pool: Pool,
    pub(super) quota: usize,
    pub(super) is_private: bool,
    pub(super) reading: Mutex<Reading>,
    pub(super) writing: Mutex<Writing>,
    /// What this end gave, and has not got back.
    pub(super) given: Mutex<Given>,
    /// What the other end has not been told of leases, with a file whose descriptor travels.
    pub(super) told: Mutex<Vec<Told>>,
    pub(super) rings: Rings,
}

/// What there is to tell, and the lease.
pub(super) type Told = (Kind, u64, Sent);

impl Shared {
    pub(super) fn new(socket: OwnedFd, pool: &Pool, quota: usize, is_private: bool) -> Self {
        let inner = Arc::new(Inner {
            socket,
            pool: pool.clone(),
            quota,
            is_private,
            reading: Mutex::default(),
            writing: Mutex::default(),
            given: Mutex::default(),
            told: Mutex::default(),
            rings: Rings::default(),
        });
        pool.add(Arc::downgrade(&inner));
        Self(inner)
    }
}

impl End for Shared {
    fn shares_memory(&self) -> bool {
        true
    }

    fn socket(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }

    fn loan(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        self.0.pool.loan_timeout(tensors, timeout)
    }

    fn post(&self, message: &Ready) -> Result<(), Error> {
        let mut writing = lock(&self.0.writing);
        let Filled::Slot(held) = &message.0 else {
            return Err(refused(
                "expected a loan of this channel or its pool, found one of a channel that sends bytes".into(),
            ));
        };
        let described = held.plan.description.len();
        if held.is_inline() {
            let head = Head { described, values: held.plan.len, ..Head::new(Kind::Inline, 0, 0) };
            return held.with_values(|values| {
                self.0.write(&mut writing, head, &held.plan.description, values, None)
            });
        }
        writing.next += 1;
        let lease = writing.next;
        let given = lock(&self.0.given).give(lease, held, self.0.quota);
        given.or_else(|_| {
            // The reader may have returned some since.
            self.0.read_ready();
            let _ = self.0.write_rest(&mut writing);
            lock(&self.0.given).give(lease, held, self.0.quota)
        })?;
        let is_new = !writing.known.contains_key(&held.number());
        if is_new {
            self.0.forget(&mut writing)?;
            writing.known.insert(held.number(), held.existence());
        }
        let kind = if is_new { Kind::LeaseNew } else { Kind::Lease };
        let head = Head { described, ..Head::new(kind, held.number(), lease) };
        let file = is_new.then_some(held);
        let written = self.0.write(&mut writing, head, &held.plan.description, &[], file);
        written.inspect_err(|_| {
            drop(lock(&self.0.given).take_back(lease));
            if is_new {
                writing.known.remove(&held.number());
            }
        })
    }

    fn flush(&self, timeout: Duration) -> Result<bool, Error> {
        let mut end = None;
        loop {
            let mut writing = lock(&self.0.writing);
            self.0.write_rest(&mut writing)?;
            let is_done = writing.rest.is_empty();
            drop(writing);
            if is_done {
                return Ok(true);
            }
            let left = left(*end.get_or_insert_with(|| Instant::now().checked_add(timeout)));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            // The other end may wait for this one to read.
            self.0.read_ready();
            self.0.wait_for(true, left)?;
        }
    }

    fn take(&self) -> Option<Result<Option<Message>, Error>> {
        let mut reading = self.0.look();
        if let Some((entries, memory, lease)) = reading.inbox.pop_front() {
            let lease = Lease::new(memory, Arc::clone(&self.0), lease);
            return Some(Ok(Some(Message::leased(entries, lease))));
        }
        reading.end.clone().map(|end| end.map(|()| None))
    }

    fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let mut end = None;
        loop {
            let reading = self.0.look();
            let is_ready = !reading.inbox.is_empty() || reading.end.is_some();
            drop(reading);
            if is_ready {
                return Ok(true);
            }
            let left = left(*end.get_or_insert_with(|| Instant::now().checked_add(timeout)));
            if left.is_some_and(|left| left.is_zero()) {
                // From here on, a message makes the socket readable: an event loop waits for that.
                self.0.rings.ask(Counter::Bytes);
                let mut reading = lock(&self.0.reading);
                self.0.read_all(&mut reading);
                return Ok(!reading.inbox.is_empty() || reading.end.is_some());
            }
            self.0.wait_for(false, left)?;
        }
    }

    fn kept(&self) -> (usize, usize) {
        self.0.read_ready();
        let given = lock(&self.0.given);
        (given.leases.len(), given.nbytes)
    }

    fn close(&self) {
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }
}

impl Inner {
    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What came, after a look at the socket if that is nothing.
    fn look(&self) -> MutexGuard<'_, Reading> {
        let mut reading = lock(&self.reading);
        if reading.inbox.is_empty() {
            self.read(&mut reading);
        }
        reading
    }

    /// Waits until something came, or can be written, or so long.
    fn wait_for(&self, writes: bool, timeout: Option<Duration>) -> Result<(), Error> {
        let rings = &self.rings;
        let writes_ring = writes && rings.writes.load(Ordering::Relaxed);
        let reads = self.is_reading();
        let is_ready = || (reads && rings.has_bytes()) || (writes_ring && rings.has_room());
        if rings.is_there() && soon(is_ready) {
            return Ok(());
        }
        let reads_ring = rings.reads.load(Ordering::Relaxed);
        let mut events = PollFlags::empty();
        events.set(PollFlags::IN, reads_ring || !writes || reads);
        events.set(PollFlags::OUT, writes && !writes_ring);
        // The inbox may be full, so that nothing is read that could wake this end.
        let tick = writes_ring.then(|| timeout.unwrap_or(TICK).min(TICK));
        rings.sleepers.fetch_add(1, Ordering::Relaxed);
        rings.ask(Counter::Bytes);
        if writes_ring {
            rings.ask(Counter::Room);
        }
        let waited = if is_ready() {
            Ok(())
        } else {
            wait(&mut [PollFd::from_borrowed_fd(self.socket(), events)], tick.or(timeout))
        };
        rings.sleepers.fetch_sub(1, Ordering::Relaxed);
        self.drain(&mut lock(&self.reading));
        waited
    }

    /// Asks the other end to make a sealed file of a lease: its descriptor, `Some(None)` where there is
    /// none, `None` where no answer has come in this time.
    pub(super) fn keep(
        &self,
        lease: u64,
        answer: &OnceLock<Arc<Answer>>,
        timeout: Duration,
    ) -> Result<Option<Option<OwnedFd>>, Error> {
        let end = Instant::now().checked_add(timeout);
        let answer = answer.get_or_init(|| {
            let answer = Arc::default();
            lock(&self.reading).asked.insert(lease, Arc::downgrade(&answer));
            self.tell(Kind::Keep, lease, None);
            answer
        });
        loop {
            let _ = self.write_rest(&mut lock(&self.writing));
            self.read_ready();
            let is_reading = self.is_reading();
            if let Some(file) = answer.get() {
                let file = file.as_ref().map(OwnedFd::try_clone).transpose();
                return file.map(Some).map_err(|error| system("dup", error));
            }
            // The end, or an inbox that is full: the answer is behind it.
            if !is_reading {
                return Ok(Some(None));
            }
            let left = left(end).unwrap_or(TICK);
            if left.is_zero() {
                return Ok(None);
            }
            self.wait_for(false, Some(left.min(TICK)))?;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The other end may still read.
        let given = self.given.get_mut().unwrap_or_else(PoisonError::into_inner);
        given.leases.values().for_each(|(held, _)| held.retire());
    }
}

/// Waits until one of the sockets can be read, or so long.
pub(super) fn readable(sockets: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
    let fds = sockets.iter().map(|&socket| PollFd::from_borrowed_fd(socket, PollFlags::IN));
    wait(&mut fds.collect::<Vec<_>>(), Some(timeout))
}
