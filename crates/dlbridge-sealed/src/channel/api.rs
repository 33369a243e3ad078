//! `Channel`: an end that shares memory, or sends bytes.

use std::fmt::Debug;
use std::net::TcpStream;
#[cfg(not(unix))]
use std::net::{Ipv4Addr, TcpListener};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dlbridge::{DType, Error, Tensor};

use super::bytes::ByBytes;
use super::connection::{AsFd, BorrowedFd, OwnedFd};
use super::loan::{Loan, Ready};
use super::message::Message;
use super::pool::Pool;
use crate::system;

/// An end of a stream of tensors between two processes.
///
/// Both ends send and receive. [`loan`](Self::loan) gives memory, which is filled in place and sent. Neither end has to
/// trust the other. Clones are the same end.
///
/// Over a Unix socket on Linux, the receiver reads the memory of the sender, without a copy; the memory is used again once
/// its tensors are dropped. Over TCP, and on other systems, values travel as bytes: slower, by the same calls.
/// [`shares_memory`](Self::shares_memory) tells which; both ends are of the same kind.
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
pub struct Channel(Arc<dyn End>);

/// What the two kinds of ends do, each in its own way.
pub(super) trait End: Debug + Send + Sync {
    fn shares_memory(&self) -> bool;
    fn socket(&self) -> BorrowedFd<'_>;
    fn loan(
        &self,
        tensors: &[(&str, DType, &[i64])],
        timeout: Duration,
    ) -> Result<Option<Loan>, Error>;
    fn post(&self, message: &Ready) -> Result<(), Error>;
    fn flush(&self, timeout: Duration) -> Result<bool, Error>;
    fn wait(&self, timeout: Duration) -> Result<bool, Error>;
    /// The next message that has come, or the end of the stream, if there is one.
    fn take(&self) -> Option<Result<Option<Message>, Error>>;
    fn kept(&self) -> (usize, usize);
    fn close(&self);
}

impl Channel {
    /// Both ends, for two threads, or for a process and its child.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn pair() -> Result<(Self, Self), Error> {
        #[cfg(unix)]
        let pair = UnixStream::pair().map_err(|error| system("socketpair", error))?;
        #[cfg(not(unix))]
        let pair = tcp_pair().map_err(|error| system("connect", error))?;
        Ok((pair.0.into(), pair.1.into()))
    }

    /// An end that has a pool of 256 MiB.
    #[cfg(unix)]
    #[must_use]
    pub fn new(socket: UnixStream) -> Self {
        socket.into()
    }

    /// An end that shares a pool with others. `quota` is how many bytes its reader may keep before
    /// [`send`](Self::send) fails, so that one reader that returns nothing does not block the others.
    /// `private` maps the slots of the other end copy-on-write: for consumers that ignore
    /// [`READ_ONLY`](dlbridge::Flags::READ_ONLY), whose writes end the process otherwise.
    ///
    /// On systems other than Linux, this is [`by_bytes`](Self::by_bytes).
    #[cfg(unix)]
    #[must_use]
    pub fn with_pool(socket: UnixStream, pool: &Pool, quota: usize, private: bool) -> Self {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        return Self(Arc::new(super::end::Shared::new(socket.into(), pool, quota, private)));
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        {
            let _ = (quota, private);
            Self::by_bytes(socket, pool)
        }
    }

    /// An end that sends and receives values as bytes, over any stream. The other end is of this kind as well. A message has at
    /// most as many bytes as the pool; the pool has none of them.
    #[must_use]
    pub fn by_bytes(socket: impl Into<OwnedFd>, pool: &Pool) -> Self {
        Self(Arc::new(ByBytes::new(socket.into(), pool.limit())))
    }

    /// Whether the receiver reads the memory of the sender. Otherwise values travel as bytes.
    #[must_use]
    pub fn shares_memory(&self) -> bool {
        self.0.shares_memory()
    }

    /// Loans memory for tensors of these names, types and shapes, to be filled and sent. Waits while
    /// readers have all memory of the pool.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for more bytes than the limit of the pool and for a name that is
    /// used twice, [`OutOfMemory`](Error::OutOfMemory), a shape or dtype that no tensor can have.
    pub fn loan(&self, tensors: &[(&str, DType, &[i64])]) -> Result<Loan, Error> {
        loop {
            if let Some(loan) = self.loan_timeout(tensors, Duration::MAX)? {
                return Ok(loan);
            }
        }
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
        Ok(self.0.loan(tensors, timeout)?.map(|loan| loan.of(self.clone())))
    }

    /// Sends a message. Waits while the socket is full. That the other end is closed may be noticed some messages later.
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
        self.0.post(message)
    }

    /// Sends what the socket did not take; waits at most so long. Whether nothing is left.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send).
    pub fn flush(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.flush(timeout)
    }

    /// Receives a message. Waits until there is one; `None` at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for anything but messages of a channel: the channel is closed then.
    pub fn receive(&self) -> Result<Option<Message>, Error> {
        loop {
            if let Some(found) = self.receive_timeout(Duration::MAX)? {
                return Ok(found);
            }
        }
    }

    /// As [`receive`](Self::receive), but waits at most so long: the outer `None` then.
    ///
    /// # Errors
    ///
    /// As [`receive`](Self::receive).
    pub fn receive_timeout(&self, timeout: Duration) -> Result<Option<Option<Message>>, Error> {
        let end = Instant::now().checked_add(timeout);
        loop {
            if let Some(found) = self.0.take() {
                return found.map(Some);
            }
            // Another thread may receive what this one waited for.
            if !self.wait(left(end).unwrap_or(Duration::MAX))? {
                return Ok(None);
            }
        }
    }

    /// Whether [`receive`](Self::receive) does not wait: a message has come, or the end. Waits for it at most so long.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        self.0.wait(timeout)
    }

    /// How many messages, and how many of their bytes, the other end has and has not returned. Those that were
    /// sent inline or by bytes are not counted.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        self.0.kept()
    }

    /// Closes the stream in both directions. Messages that were received stay valid.
    pub fn close(&self) {
        self.0.close();
    }
}

/// An end that shares memory on Linux, and sends bytes elsewhere.
#[cfg(unix)]
impl From<UnixStream> for Channel {
    fn from(socket: UnixStream) -> Self {
        Self::with_pool(socket, &Pool::default(), usize::MAX, false)
    }
}

/// An end that sends bytes, to another machine for instance.
impl From<TcpStream> for Channel {
    fn from(socket: TcpStream) -> Self {
        Self::by_bytes(socket, &Pool::default())
    }
}

#[cfg(unix)]
impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }
}

#[cfg(windows)]
impl AsFd for Channel {
    fn as_socket(&self) -> BorrowedFd<'_> {
        self.0.socket()
    }
}

/// Two sockets of this process that are connected: where no call of the system makes a pair.
#[cfg(not(unix))]
fn tcp_pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    loop {
        let (other, peer) = listener.accept()?;
        // Another process may have connected first.
        if peer == one.local_addr()? {
            return Ok((one, other));
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time until `end`; `None` for ever.
pub(super) fn left(end: Option<Instant>) -> Option<Duration> {
    end.map(|end| end.saturating_duration_since(Instant::now()))
}
