//! A connected socket that never waits, on every system.

use std::io::IoSlice;
use std::time::Duration;

use dlbridge::Error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
pub(super) use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, shutdown, sockopt};
#[cfg(windows)]
pub(super) use std::os::windows::io::{
    AsSocket as AsFd, BorrowedSocket as BorrowedFd, OwnedSocket as OwnedFd,
};

use crate::system;

/// What a write to a closed stream fails with.
#[cfg(unix)]
const CLOSED: Errno = Errno::PIPE;
#[cfg(windows)]
const CLOSED: Errno = Errno::SHUTDOWN;
/// The most parts of a frame that one call writes.
const MOST_PARTS: usize = 64;
/// The longest wait: another thread may have read what this one waits for, which no descriptor tells.
const RECHECK: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl Connection {
    pub(super) fn new(socket: OwnedFd) -> Self {
        // Small messages are not held back for others to come. A Unix socket has no such option.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        #[cfg(windows)]
        let _ = rustix::io::ioctl_fionbio(&socket, true);
        Self(socket)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        #[cfg(unix)]
        return self.0.as_fd();
        #[cfg(windows)]
        return self.0.as_socket();
    }

    /// Appends what has come to the room that `bytes` has. The number of bytes, 0 at the end of the stream; `None` if
    /// there are none yet.
    pub(super) fn read(&self, bytes: &mut Vec<u8>) -> Result<Option<usize>, Error> {
        #[cfg(unix)]
        let flags = RecvFlags::DONTWAIT;
        #[cfg(windows)]
        let flags = RecvFlags::empty();
        loop {
            return match recv(&self.0, rustix::buffer::spare_capacity(bytes), flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => Ok(None),
                // The other end was killed, or closed with frames that it had not read.
                Err(Errno::CONNRESET | Errno::CONNABORTED) => Ok(Some(0)),
                read => read.map(|(read, _)| Some(read)).map_err(|error| system("recv", error)),
            };
        }
    }

    /// The number of bytes that the socket took; `None` if it is full.
    pub(super) fn write(&self, parts: &[IoSlice<'_>]) -> Result<Option<usize>, Error> {
        loop {
            return match self.write_once(&parts[..parts.len().min(MOST_PARTS)]) {
                Err(Errno::INTR) => continue,
                Err(Errno::WOULDBLOCK) => Ok(None),
                Err(error @ (CLOSED | Errno::CONNRESET | Errno::CONNABORTED)) => {
                    Err(system("send", format!("{error}: the other end is closed")))
                }
                written => written.map(Some).map_err(|error| system("send", error)),
            };
        }
    }

    #[cfg(unix)]
    fn write_once(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        // Where there is no such flag, Rust and Python ignore the signal.
        #[cfg(target_vendor = "apple")]
        let flags = SendFlags::DONTWAIT;
        #[cfg(not(target_vendor = "apple"))]
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, parts, &mut Default::default(), flags)
    }

    #[cfg(windows)]
    fn write_once(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let part = parts.iter().find(|part| !part.is_empty());
        part.map_or(Ok(0), |part| rustix::net::send(&self.0, part, SendFlags::empty()))
    }

    pub(super) fn close(&self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }

    /// Waits until the socket can be read, or written to, or so long.
    pub(super) fn wait(&self, events: PollFlags, timeout: Option<Duration>) -> Result<(), Error> {
        wait(&mut [PollFd::from_borrowed_fd(self.socket(), events)], timeout)
    }
}

/// Waits for an event, and no longer than `RECHECK`. A signal ends it early as well, so that the caller looks again.
pub(super) fn wait(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Error> {
    let timeout = Timespec::try_from(timeout.map_or(RECHECK, |timeout| timeout.min(RECHECK)));
    match poll(fds, timeout.ok().as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(system("poll", error)),
    }
}
