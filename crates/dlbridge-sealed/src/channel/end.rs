//! An end of a channel: a socket, the slots that the other end has, and those that it gave.
//! Invariant: no lock is held while a call waits, and a drop waits for nothing.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error, Tensor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::loan::{Held, Loan, Ready};
use super::message::Message;
use super::pool::{Pool, TICK};
use super::reading::{Answer, Reading};
use super::wire::{Head, Kind};
use super::writing::{Given, Writing};
use crate::raw::system;

/// An end of a stream of tensors between two processes on one machine (Linux).
///
/// Both ends send and receive. [`loan`](Self::loan) gives memory, which is filled in place and sent; its receiver reads
/// it without a copy, and the memory is used again once its tensors are dropped. Neither end has to trust the
/// other. Clones are the same end.
///
/// ```
/// use dlbridge::DType;
/// use dlbridge_sealed::Channel;
///
/// let (maker, reader) = Channel::pair()?;
///
/// let mut loan = maker.loan(&[("x", DType::F32, &[100, 100])])?;
/// loan.tensor("x")?.as_slice_mut::<f32>()?.fill(1.5);
/// loan.send()?;
///
/// // In the other process, which has the socket of `reader`:
/// let message = reader.receive()?.expect("a message");
/// assert_eq!(message.tensor("x")?.view::<f32>()?.iter().sum::<f32>(), 15_000.0);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Channel(Arc<Inner>);

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
    /// What the other end has not been told of leases, with a slot whose descriptor travels.
    pub(super) told: Mutex<Vec<Told>>,
}

/// What there is to tell, and the lease.
pub(super) type Told = (Kind, u64, Option<Arc<Held>>);

impl Channel {
    /// Both ends, for two threads, or for a process and its child.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn pair() -> Result<(Self, Self), Error> {
        let (one, other) = UnixStream::pair().map_err(|error| system("socketpair", error))?;
        Ok((Self::new(one), Self::new(other)))
    }

    /// An end that has a pool of 256 MiB.
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self::with_pool(socket, &Pool::default(), usize::MAX, false)
    }

    /// An end that shares a pool with others. `quota` is how many bytes its reader may keep before
    /// [`send`](Self::send) fails, so that one reader that returns nothing does not block the others.
    /// `private` maps the slots of the other end copy-on-write: for consumers that ignore
    /// [`READ_ONLY`](dlbridge::Flags::READ_ONLY), whose writes end the process otherwise.
    #[must_use]
    pub fn with_pool(socket: UnixStream, pool: &Pool, quota: usize, private: bool) -> Self {
        let inner = Arc::new(Inner {
            socket: socket.into(),
            pool: pool.clone(),
            quota,
            is_private: private,
            reading: Mutex::default(),
            writing: Mutex::default(),
            given: Mutex::default(),
            told: Mutex::default(),
        });
        pool.add(Arc::downgrade(&inner));
        Self(inner)
    }

    /// Loans memory for tensors of these names, types and shapes, to be filled and sent. Waits while
    /// readers have all memory of the pool.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for more bytes than the limit of the pool and for a name that is
    /// used twice, [`OutOfMemory`](Error::OutOfMemory), a shape or dtype that no tensor can have.
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        Ok(self.0.pool.loan(tensors)?.of(self.clone()))
    }

    /// As [`loan`](Self::loan), but waits at most so long: `None` then.
    ///
    /// # Errors
    ///
    /// As [`loan`](Self::loan).
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Option<Loan>, Error> {
        let loan = self.0.pool.loan_timeout(tensors, timeout)?;
        Ok(loan.map(|loan| loan.of(self.clone())))
    }

    /// Sends a message. Waits while the socket is full.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) if the other end is closed, or keeps more than its quota.
    pub fn send(&self, message: &Ready) -> Result<(), Error> {
        self.post(message)?;
        while !self.flush(Duration::MAX)? {}
        Ok(())
    }

    /// Sends copies of tensors.
    ///
    /// # Errors
    ///
    /// As [`loan`](Self::loan) and [`send`](Self::send); [`NotHostAccessible`](Error::NotHostAccessible).
    pub fn send_copy(&self, tensors: &[(&str, &Tensor)]) -> Result<(), Error> {
        let declared: Vec<_> =
            tensors.iter().map(|(name, tensor)| (*name, tensor.dtype(), tensor.shape())).collect();
        let mut loan = self.loan(&declared)?;
        for (name, tensor) in tensors {
            loan.copy_from(name, tensor)?;
        }
        loan.send()
    }

    /// As [`send`](Self::send), without waiting: what the socket does not take is sent by [`flush`](Self::flush), or
    /// before the next message.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn post(&self, message: &Ready) -> Result<(), Error> {
        let mut writing = lock(&self.0.writing);
        let Ready(held) = message;
        let described = held.description.len();
        if held.is_inline() {
            let head = Head { described, values: held.len, ..Head::new(Kind::Inline, 0, 0) };
            return held.with_values(|values| {
                self.0.write(&mut writing, head, &held.description, values, None)
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
        let written = self.0.write(&mut writing, head, &held.description, &[], file);
        written.inspect_err(|_| {
            drop(lock(&self.0.given).take_back(lease));
            if is_new {
                writing.known.remove(&held.number());
            }
        })
    }

    /// Sends what the socket did not take; waits at most so long. Whether nothing is left.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn flush(&self, timeout: Duration) -> Result<bool, Error> {
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
            let input = if self.0.is_reading() { PollFlags::IN } else { PollFlags::empty() };
            self.0.wait_for(PollFlags::OUT | input, left)?;
        }
    }

    /// Receives a message. Waits until there is one; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for anything but messages of a channel: the channel is closed then.
    pub fn receive(&self) -> Result<Option<Message>, Error> {
        loop {
            let mut reading = self.0.look();
            if let Some((entries, memory, lease)) = reading.inbox.pop_front() {
                let from = Some((Arc::clone(&self.0), lease));
                return Ok(Some(Message::new(entries, memory, from)));
            }
            if let Some(end) = &reading.end {
                return end.clone().map(|()| None);
            }
            drop(reading);
            self.0.wait_for(PollFlags::IN, None)?;
        }
    }

    /// Whether [`receive`](Self::receive) does not wait: a message has come, or the end. Waits for it at most so long.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let mut end = None;
        loop {
            let reading = self.0.look();
            let is_ready = !reading.inbox.is_empty() || reading.end.is_some();
            drop(reading);
            if is_ready || timeout.is_zero() {
                return Ok(is_ready);
            }
            let left = left(*end.get_or_insert_with(|| Instant::now().checked_add(timeout)));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(false);
            }
            self.0.wait_for(PollFlags::IN, left)?;
        }
    }

    /// How many messages, and how many of their bytes, the other end has and has not returned. Those that were
    /// sent inline are not counted.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        self.0.read_ready();
        let given = lock(&self.0.given);
        (given.leases.len(), given.nbytes)
    }

    /// Closes the stream in both directions. Messages that were received stay valid.
    pub fn close(&self) {
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket()
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

    fn wait_for(&self, events: PollFlags, timeout: Option<Duration>) -> Result<(), Error> {
        wait(&mut [PollFd::from_borrowed_fd(self.socket(), events)], timeout)
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
            readable(&[self.socket()], left.min(TICK))?;
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time until `end`; `None` for ever.
fn left(end: Option<Instant>) -> Option<Duration> {
    end.map(|end| end.saturating_duration_since(Instant::now()))
}

/// Waits until one of the sockets can be read, or so long.
pub(super) fn readable(sockets: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), Error> {
    let fds = sockets.iter().map(|&socket| PollFd::from_borrowed_fd(socket, PollFlags::IN));
    wait(&mut fds.collect::<Vec<_>>(), Some(timeout))
}

/// Waits for an event. A signal ends it early, so that the caller looks again.
fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
    let timeout = timeout.map(|timeout| {
        Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(system("poll", error)),
    }
}
