//! Streams of tensors between two processes (Linux): slots of memory are loaned, filled, sent, read and used again.
//!
//! Files, each of which uses only those above it:
//!
//! | file | job |
//! | --- | --- |
//! | `wire.rs` | frames as bytes: a head, a description of tensors, metadata, small values |
//! | `transport.rs` | frames and descriptors through a socket that never waits |
//! | `peer.rs` | slots of the other end, mapped to be read |
//! | `slots.rs` | slots of this end, and the leases of readers |
//! | `reading.rs`, `writing.rs` | the halves of an end: frames of a transport, slots in one direction each |
//! | `end.rs` | an end: both halves, and the leases that they share |
//! | `message.rs`, `pool.rs` | messages to be filled, to be sent and that were received; the memory of several channels |
//! | this one | `Channel`: an end, and the memory of its messages |
//!
//! Locks, in the order in which a thread takes them: the reader of an end, its writer, the leases that it gave, the leases
//! that it is to return, the slots of a pool. The reader and the writer are never held together: reading sends nothing, and
//! sending reads nothing. No lock is held while a call waits.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod end;
mod message;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod peer;
mod pool;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod reading;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod slots;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod transport;
#[cfg_attr(not(any(target_os = "linux", target_os = "android")), allow(dead_code))]
mod wire;
#[cfg(any(target_os = "linux", target_os = "android"))]
mod writing;

#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use dlbridge::{DType, Error, Tensor};

#[cfg(not(any(target_os = "linux", target_os = "android")))]
use crate::memfd as end;
use crate::refused;
use crate::wait::{Deadline, WaitError};
use end::End;

pub use message::{Loan, Message, Ready};
pub use pool::Pool;

/// An end of a stream of tensors between two processes of one machine (Linux).
///
/// Both ends send and receive. [`loan`](Self::loan) gives memory, which is filled in place and sent; the receiver reads
/// that memory, and it is used again once the tensors are dropped there. Small messages travel through the socket. Neither
/// end has to trust the other. A clone is the same end.
///
/// Dropping an end, with its clones and its loans, ends the stream; messages that were received stay valid.
/// An end belongs to the process that uses it first: a child that is forked later has a copy, whose calls fail. Dropping
/// an end there, or closing it, does not end the stream. An unused end works in each process that has a copy of it, but
/// use it in one of them only: two would mix up the stream.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), dlbridge::Error> {
/// use dlbridge::DType;
/// use dlbridge_sealed::Channel;
///
/// let (maker, reader) = Channel::pair()?;
///
/// let mut loan = maker.loan(&[("x", DType::F32, &[100, 100])])?;
/// loan.tensor("x")?.as_slice_mut::<f32>()?.fill(1.5);
/// loan.metadata("request", "7");
/// loan.send()?;
///
/// // In the other process, which has the socket of `reader`:
/// let message = reader.receive()?.expect("a message");
/// assert_eq!(message.metadata()["request"], "7");
/// assert_eq!(message.tensor("x")?.view::<f32>()?.iter().sum::<f32>(), 15_000.0);
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    end: Arc<End>,
    pool: Pool,
}

impl Channel {
    /// Both ends of a stream, for two threads, or for a process and its child.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says, and on systems other than Linux.
    pub fn pair() -> Result<(Self, Self), Error> {
        let make = |end| {
            let channel = Self { end: Arc::new(end), pool: Pool::default() };
            channel.pool.add(&channel.end);
            channel
        };
        let (one, other) = End::pair()?;
        Ok((make(one), make(other)))
    }

    /// An end over a connected socket, with a pool of 256 MiB.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        Self::with_pool(socket, &Pool::default(), usize::MAX, false)
    }

    /// An end that shares a pool with other ends. `quota` is how many bytes its reader may keep before
    /// [`send`](Self::send) fails, so that one reader that returns nothing does not block the others.
    /// `private` maps the slots of the other end copy-on-write: for consumers that ignore
    /// [`READ_ONLY`](dlbridge::Flags::READ_ONLY), whose writes end the process otherwise.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[must_use]
    pub fn with_pool(socket: UnixStream, pool: &Pool, quota: usize, private: bool) -> Self {
        let channel =
            Self { end: Arc::new(End::new(socket.into(), quota, private)), pool: pool.clone() };
        pool.add(&channel.end);
        channel
    }

    /// Loans memory for tensors of these names, types and shapes, to be filled and sent. Waits while
    /// readers and unsent loans of this process have all memory of the pool.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for more bytes than the limit of the pool, for more than 4,096 tensors and for a name
    /// that is used twice, [`OutOfMemory`](Error::OutOfMemory), a shape or dtype that no tensor can have.
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        Ok(self.loan_timeout(tensors, Duration::MAX)?)
    }

    /// As [`loan`](Self::loan), with a timeout.
    ///
    /// # Errors
    ///
    /// As [`loan`](Self::loan), and [`WaitError::Timeout`].
    pub fn loan_timeout(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Loan, WaitError> {
        self.pool.loan_for(Some(&self.end), tensors, timeout)
    }

    /// Sends a message. Waits while the socket is full. The error for a closed end may come some messages later.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) if the other end is closed, keeps more than its quota or has this message already, and
    /// in a child that was forked after the first use of this end. The same if both ends send and neither receives: 256
    /// messages or 8 MiB wait here, and for ten seconds no thread received one and the other end read nothing.
    pub fn send(&self, message: &Ready) -> Result<(), Error> {
        Ok(self.send_timeout(message, Duration::MAX)?)
    }

    /// As [`send`](Self::send), with a timeout. A message of which the socket took a part counts as sent: the rest
    /// leaves with the next call of this end.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), with [`WaitError::Stalled`] where neither end receives, and [`WaitError::Timeout`] if
    /// nothing of the message was sent.
    pub fn send_timeout(&self, message: &Ready, timeout: Duration) -> Result<(), WaitError> {
        // The other end knows slots by their numbers, which each pool counts.
        if !message.is_of(&self.pool.slots) {
            return Err(refused(
                "expected a message of this channel's pool, found one of another; make both channels with one pool".into(),
            )
            .into());
        }
        message.send(&self.end, Deadline::after(timeout))
    }

    /// Waits until the socket has taken all messages that were sent, with a timeout.
    ///
    /// # Errors
    ///
    /// As [`send_timeout`](Self::send_timeout), and [`WaitError::Timeout`].
    pub fn flush_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.end.flush_until(Deadline::after(timeout))
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

    /// Receives a message. Waits until there is one; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for bytes that are no message, which close the channel, and in a child that was
    /// forked after the first use of this end.
    pub fn receive(&self) -> Result<Option<Message>, Error> {
        Ok(self.receive_timeout(Duration::MAX)?)
    }

    /// As [`receive`](Self::receive), with a timeout.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive), and [`WaitError::Timeout`].
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Message>, WaitError> {
        let deadline = Deadline::after(timeout);
        loop {
            if let Some(found) = self.end.take() {
                return Ok(found?.map(Message::new));
            }
            // Another thread may receive what this one waited for.
            if !self.end.wait(deadline)? {
                return Err(WaitError::Timeout);
            }
        }
    }

    /// Waits for a message or the end of the stream, with a timeout. Whether [`receive`](Self::receive) returns at once.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says, and in a child that was forked after the first use of this
    /// end.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.end.wait(Deadline::after(timeout))
    }

    /// The number of messages whose memory the other end has not returned, and their bytes. Small messages, which
    /// travel through the socket, do not count.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        self.end.kept()
    }

    /// Ends the stream in both directions, if this process has used this end. Messages that were received stay valid.
    pub fn close(&self) {
        self.end.close();
    }
}

/// Whether two channels are the same end.
impl PartialEq for Channel {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.end, &other.end)
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl From<UnixStream> for Channel {
    fn from(socket: UnixStream) -> Self {
        Self::new(socket)
    }
}

/// The socket, for event loops: it can be read when a message or the end has come that [`wait`](Channel::wait) has not
/// seen yet.
#[cfg(unix)]
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
