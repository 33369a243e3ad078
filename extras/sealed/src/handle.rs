//! Sealed tensors in another process: sent through a socket, or opened by a handle, a short byte string.
//! Serving those who have a handle belongs to `serve`.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use dlbridge::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    socket_with,
};

use crate::memfd::is_of_this_user;
use crate::serve::{Key, Opens, PAUSE, name_of, server};
use crate::socket::{receive_file, send_file, wait};
use crate::wait::{Deadline, WaitError};
use crate::{SealedTensors, lock, refused, system};

/// The first bytes of a handle. Then come the process that made it, the machine and its boot, the network namespace,
/// the name of a socket, and a secret.
const MAGIC: [u8; 4] = *b"dlb1";
const PROCESS: usize = MAGIC.len();
const BOOT: usize = PROCESS + size_of::<u32>();
const NAME: usize = BOOT + size_of::<Machine>();
const SECRET: usize = NAME + size_of::<Key>();
const LEN: usize = SECRET + size_of::<Key>();

/// The identifier of the boot as text, and the number of the network namespace, in which the names of
/// sockets are.
type Machine = [u8; 44];

/// How long a process that opens a handle waits for the maker.
const TURN: Duration = Duration::from_secs(10);

impl SealedTensors {
    /// Sends the descriptor over a Unix socket, with one byte. In Python, `socket.recv_fds` receives it.
    ///
    /// ```
    /// use std::os::unix::net::UnixStream;
    ///
    /// use dlbridge::Tensor;
    /// use dlbridge_sealed::SealedTensors;
    ///
    /// let (here, there) = UnixStream::pair()?;
    /// SealedTensors::try_from(&Tensor::from(vec![1_i64, 2]))?.send(&here)?;
    ///
    /// // In the other process:
    /// let sealed = SealedTensors::receive(&there)?;
    /// assert_eq!(sealed.tensor("tensor")?.as_slice::<i64>()?, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn send(&self, socket: impl AsFd) -> Result<(), Error> {
        send_file(socket, self)
    }

    /// Receives a descriptor and one byte, as [`send`](Self::send) or `socket.send_fds` in Python
    /// sends them, and checks the file.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) if anything but one descriptor arrives, and those of
    /// [`try_from`](Self::try_from).
    pub fn receive(socket: impl AsFd) -> Result<Self, Error> {
        let file = receive_file(socket)?
            .ok_or_else(|| refused("expected one descriptor, found the end of the stream".into()));
        Self::try_from(file?)
    }

    /// A handle: 84 bytes for any message, with which [`open_handle`] opens the tensors in another process of the
    /// same user on this machine. It contains a secret: every such process that has the bytes can open the tensors.
    ///
    /// A thread of this process sends the descriptors, so all its handles end with the process.
    ///
    /// ```
    /// use dlbridge::Tensor;
    /// use dlbridge_sealed::{Opens, SealedTensors, open_handle};
    ///
    /// let sealed = SealedTensors::try_from(&Tensor::from(vec![1_i64, 2]))?;
    /// let handle: Vec<u8> = sealed.handle(Opens::Many)?;
    ///
    /// // In another process, to which any message brought the bytes:
    /// let opened = open_handle(&handle)?;
    /// assert_eq!(opened.tensor("tensor")?.as_slice::<i64>()?, [1, 2]);
    ///
    /// drop(sealed);
    /// assert!(open_handle(&handle).is_err());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn handle(&self, opens: Opens) -> Result<Vec<u8>, Error> {
        let server = server()?;
        let secret =
            lock(&server.served).share(&self.handles, opens, || Ok(self.try_clone()?.into()))?;
        let process = std::process::id().to_le_bytes();
        Ok([&MAGIC[..], &process, &machine()?, &server.name, &secret].concat())
    }
}

/// Opens sealed tensors by a [handle](SealedTensors::handle), and checks them as
/// [`try_from`](SealedTensors::try_from) does. Waits ten seconds at most for the process that made it.
///
/// # Errors
///
/// [`Refused`](Error::Refused) for bytes that are no handle; for a handle of another user, of another machine or
/// network namespace; for one that was revoked, used, or forged; if the process that made it has ended or does not
/// answer; and those of [`try_from`](SealedTensors::try_from).
pub fn open_handle(handle: &[u8]) -> Result<SealedTensors, Error> {
    let mut opening = Opening::new(handle)?;
    match opening.wait(TURN) {
        Err(WaitError::Timeout) => Err(opening.is_silent()),
        opened => Ok(opened?),
    }
}

/// Sealed tensors that are being opened by a handle, for a caller that does other work while it waits.
#[derive(Debug)]
pub struct Opening {
    handle: [u8; LEN],
    socket: OwnedFd,
    is_asked: bool,
}

impl Opening {
    /// Checks a handle, without waiting.
    ///
    /// # Errors
    ///
    /// Those of [`open_handle`] that need no other process.
    pub fn new(handle: &[u8]) -> Result<Self, Error> {
        let bytes = handle.try_into().ok().filter(|_| handle.starts_with(&MAGIC));
        let handle: [u8; LEN] = bytes.ok_or_else(|| {
            let found = handle.len();
            refused(format!("expected a handle of {LEN} bytes, found {found} other bytes"))
        })?;
        if handle[BOOT..NAME] != machine()? {
            return Err(failed(
                "expected a handle of this machine, its last boot and this network namespace, found one of another; \
                 send the bytes of the tensors",
            ));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.map_err(|error| system("socket", error))?;
        Ok(Self { handle, socket, is_asked: false })
    }

    /// Opens the tensors. Waits for `timeout` at most; another call continues to wait.
    ///
    /// # Errors
    ///
    /// Those of [`open_handle`], and [`WaitError::Timeout`].
    pub fn wait(&mut self, timeout: Duration) -> Result<SealedTensors, WaitError> {
        let deadline = Deadline::after(timeout);
        loop {
            self.is_asked = self.is_asked || self.ask()?;
            let left = deadline.left(if self.is_asked { TURN } else { PAUSE });
            if self.is_asked {
                if wait(&[(self.socket.as_fd(), PollFlags::IN)], left)? {
                    return Ok(self.receive()?);
                }
            } else {
                // A process whose queue of clients is full is asked once more. `poll` does not wait: the socket is not
                // connected, which is an event.
                thread::sleep(left);
            }
            if left.is_zero() {
                return Err(WaitError::Timeout);
            }
        }
    }

    /// Sends the secret, unless the process has no room for one more client.
    fn ask(&self) -> Result<bool, Error> {
        let address = SocketAddrUnix::new_abstract_name(&name_of(&self.handle[NAME..SECRET]));
        match address.and_then(|address| connect(&self.socket, &address)) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
            Err(error) => return Err(self.is_gone(error)),
            Ok(()) => {}
        }
        if !is_of_this_user(&self.socket)? {
            return Err(failed("expected a handle of this user, found one of another user"));
        }
        // A new socket has room for so few bytes.
        let secret = &self.handle[SECRET..];
        let sent = rustix::net::send(&self.socket, secret, SendFlags::NOSIGNAL);
        sent.map(|_| true).map_err(|error| match error {
            Errno::PIPE | Errno::CONNRESET => self.is_gone(error),
            error => system("send", error),
        })
    }

    fn receive(&self) -> Result<SealedTensors, Error> {
        // A process that ended before it took the client.
        if let Err(error @ Errno::CONNRESET) = recv(&self.socket, &mut [0; 1], RecvFlags::PEEK) {
            return Err(self.is_gone(error));
        }
        match receive_file(&self.socket)? {
            Some(file) => SealedTensors::try_from(file),
            None => Err(failed(
                "expected a handle that is valid, found one that was revoked, used, or made by another user: keep the \
                 sealed tensors until it is opened",
            )),
        }
    }

    fn process(&self) -> u32 {
        let bytes = self.handle[PROCESS..BOOT].iter().rev();
        bytes.fold(0, |all, &byte| all << 8 | u32::from(byte))
    }

    fn is_gone(&self, error: Errno) -> Error {
        let process = self.process();
        failed(&format!(
            "expected that process {process}, which made the handle, is alive: {error}"
        ))
    }

    fn is_silent(&self) -> Error {
        let (process, seconds) = (self.process(), TURN.as_secs());
        failed(&format!(
            "expected an answer of process {process}, which made the handle, found none in {seconds} s: it is stopped, or has \
             too much to do; open the handle again"
        ))
    }
}

fn machine() -> Result<Machine, Error> {
    let boot =
        fs::read("/proc/sys/kernel/random/boot_id").map_err(|error| system("boot_id", error))?;
    let namespace = fs::metadata("/proc/self/ns/net").map_err(|error| system("stat", error))?.ino();
    let mut machine = [0; size_of::<Machine>()];
    let (text, number) = machine.split_at_mut(size_of::<Machine>() - size_of::<u64>());
    let len = text.len().min(boot.len());
    text[..len].copy_from_slice(&boot[..len]);
    number.copy_from_slice(&namespace.to_le_bytes());
    Ok(machine)
}

fn failed(reason: &str) -> Error {
    Error::Refused { by: "open_handle", reason: reason.into() }
}
