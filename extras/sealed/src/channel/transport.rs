//! Frames and descriptors through a socket, without waiting.
//! Invariant: once the socket took a part of a frame, the rest of that frame follows before any other byte.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dlbridge::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, shutdown};

use super::wire::{Frame, broken};
use crate::socket::{no_room, receive, send, wait};
use crate::system;

/// How many bytes one call reads.
pub(super) const READ: usize = 64 << 10;
/// The most descriptors that no frame has named yet.
const MOST_FILES: usize = 64;

#[derive(Debug)]
pub(super) struct Transport {
    socket: OwnedFd,
    /// How many bytes the socket took.
    sent: AtomicUsize,
}

/// Bytes that were read and are no whole frame yet.
#[derive(Default, Debug)]
pub(super) struct Incoming {
    /// Its first `filled` bytes were read. The rest is not cleared again for each call.
    buffer: Vec<u8>,
    filled: usize,
    files: VecDeque<OwnedFd>,
}

/// Bytes that the socket has not taken: the rest of a frame, whose descriptor is sent, then ends of leases.
pub(super) type Outgoing = Vec<u8>;

/// What one read found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    Nothing,
    Bytes(usize),
    End,
}

impl Incoming {
    /// Passes each whole frame to `take`, with the descriptors that came so far.
    pub(super) fn each_frame(
        &mut self,
        mut take: impl FnMut(Frame<'_>, &mut VecDeque<OwnedFd>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut rest = &self.buffer[..self.filled];
        while let Some((frame, next)) = Frame::split(rest)? {
            take(frame, &mut self.files)?;
            rest = next;
        }
        let start = self.filled - rest.len();
        self.buffer.copy_within(start..self.filled, 0);
        self.filled -= start;
        Ok(())
    }

    pub(super) fn is_between_frames(&self) -> bool {
        self.filled == 0
    }
}

impl Transport {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, sent: AtomicUsize::new(0) }
    }

    /// How many bytes the socket took so far.
    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }

    /// Reads once. Descriptors are checked by their frames.
    pub(super) fn read(&self, incoming: &mut Incoming) -> Result<Read, Error> {
        let start = incoming.filled;
        if incoming.buffer.len() < start + READ {
            incoming.buffer.resize(start + READ, 0);
        }
        let bytes = &mut incoming.buffer[start..start + READ];
        let received = receive(&self.socket, bytes, &mut incoming.files, RecvFlags::DONTWAIT);
        let (read, is_cut) = match received {
            Err(Errno::AGAIN) => return Ok(Read::Nothing),
            // The other end was closed with frames that it had not read.
            Err(Errno::CONNRESET) => return Ok(Read::End),
            received => received.map_err(|error| system("recvmsg", error))?,
        };
        if is_cut {
            return Err(no_room());
        }
        if incoming.files.len() > MOST_FILES {
            return Err(broken("descriptors without frames".into()));
        }
        incoming.filled += read;
        Ok(if read == 0 { Read::End } else { Read::Bytes(read) })
    }

    /// Sends what is left of earlier frames. Whether nothing is left.
    pub(super) fn flush(&self, outgoing: &mut Outgoing) -> Result<bool, Error> {
        while !outgoing.is_empty() {
            let Some(written) = self.write(&[IoSlice::new(outgoing)], None)? else {
                return Ok(false);
            };
            outgoing.drain(..written);
        }
        Ok(true)
    }

    /// Sends the rest of earlier frames, then a frame with a descriptor. Whether the socket took its first byte.
    pub(super) fn send<const N: usize>(
        &self,
        outgoing: &mut Outgoing,
        parts: [&[u8]; N],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<bool, Error> {
        if !self.flush(outgoing)? {
            return Ok(false);
        }
        let Some(mut written) = self.write(&parts.map(IoSlice::new), file)? else {
            return Ok(false);
        };
        for part in parts {
            outgoing.extend(&part[written.min(part.len())..]);
            written = written.saturating_sub(part.len());
        }
        Ok(true)
    }

    /// The number of bytes that the socket took, with the descriptor; `None` if it is full.
    fn write(
        &self,
        parts: &[IoSlice<'_>],
        file: Option<BorrowedFd<'_>>,
    ) -> Result<Option<usize>, Error> {
        match send(&self.socket, parts, file, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Err(Errno::AGAIN) => Ok(None),
            Err(error @ (Errno::PIPE | Errno::CONNRESET)) => {
                Err(system("sendmsg", format!("{error}: the other end is closed")))
            }
            Err(error) => Err(system("sendmsg", error)),
            Ok(sent) => {
                self.sent.fetch_add(sent, Ordering::Relaxed);
                Ok(Some(sent))
            }
        }
    }

    /// Whether the other end is closed in both directions. Bytes of it may still be there to read.
    pub(super) fn is_hung_up(&self) -> bool {
        wait(&[(self.as_fd(), PollFlags::empty())], Duration::ZERO) == Ok(true)
    }

    pub(super) fn close(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
