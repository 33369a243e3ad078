//! Handles: short byte strings that open sealed tensors in another process.
//! Invariant: a file is sent only to a process of this user that knows a secret of it.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{ErrorKind, Read};
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
use std::os::fd::{AsFd, OwnedFd};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dlbridge::Error;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    socket_with,
};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::fork::{never_inherited, process};
use crate::memfd::is_of_this_user;
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

type Key = [u8; 16];
/// The identifier of the boot as text, and the number of the network namespace, in which the names of
/// sockets are.
type Machine = [u8; 44];

/// The most clients that the maker waits for at once, and how long it waits for each.
const CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a process that opens a handle waits for the maker.
const TURN: Duration = Duration::from_secs(10);
/// How long the maker waits when it has no descriptor left, before it looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a [handle](SealedTensors::handle) opens its tensors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Opens {
    /// Any number of times, until the sealed tensors and their clones are dropped.
    Many,
    /// Once. The handle keeps the memory until then, or until its process ends.
    Once,
    /// As [`Many`](Self::Many), but the memory is kept until the handle was opened once for each call that returned it:
    /// for messages that outlive the sender's tensors, as pickles do.
    OnceAtLeast,
}

impl SealedTensors {
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
        let secret = lock(&server.served).share(&self.handles, opens, self)?;
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

/// The handles of sealed tensors and their clones, which a server knows by its address.
#[derive(Default, Debug)]
pub(crate) struct Handles(
    /// Of a size, so that each has an address of its own.
    #[allow(dead_code, reason = "not read")]
    u8,
);

impl Handles {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Handles {
    fn drop(&mut self) {
        // A child that is forked revokes no handle of its parent.
        if let Ok(server) = started() {
            lock(&server.served).revoke(self);
        }
    }
}

/// The sealed files that the thread of a process sends, by their secrets.
#[derive(Debug)]
struct Server {
    /// The process of the thread, by its [forks](process): a child in another namespace may have the number of its parent.
    /// A forked child has a copy of this struct without the thread, whose lock may be held.
    process: u64,
    name: Key,
    served: Mutex<Served>,
    /// The server of a forked child, or of a child of that.
    next: Next,
}

type Next = OnceLock<Box<Server>>;

#[derive(Default, Debug)]
struct Served {
    shared: HashMap<Key, Shared>,
    /// The secrets of sealed tensors, of which each call returns the same handle.
    made: HashMap<(usize, Opens), Key>,
}

#[derive(Debug)]
struct Shared {
    file: OwnedFd,
    opens: Opens,
    /// How often it must still be opened before it can be removed.
    expected: usize,
    /// Whether the sealed tensors are dropped.
    is_dropped: bool,
}

impl Shared {
    fn expect(&mut self, opens: Opens) {
        self.expected += usize::from(opens == Opens::OnceAtLeast);
    }
}

static FIRST: Next = OnceLock::new();

/// The server of this process, or the place for it.
fn started() -> Result<&'static Server, &'static Next> {
    let mut place = &FIRST;
    while let Some(server) = place.get() {
        if server.process == process() {
            return Ok(server);
        }
        place = &server.next;
    }
    Err(place)
}

/// The server of this process, which is started by the first call.
fn server() -> Result<&'static Server, Error> {
    loop {
        match started() {
            Ok(server) => return Ok(server),
            Err(place) => start(place)?,
        }
    }
}

/// Starts a server, unless another thread was quicker.
fn start(place: &'static Next) -> Result<(), Error> {
    let name = random()?;
    let address = SocketAddr::from_abstract_name(name_of(&name));
    let listener = address.and_then(|address| UnixListener::bind_addr(&address));
    let listener = listener.map_err(|error| system("bind", error))?;
    listener.set_nonblocking(true).map_err(|error| system("ioctl", error))?;
    let (sender, receiver) = mpsc::channel::<(&'static Server, &'static UnixListener)>();
    let serve = move || receiver.iter().for_each(|(server, listener)| server.serve(listener));
    let thread = thread::Builder::new().name("dlbridge-handles".into()).spawn(serve);
    thread.map_err(|error| system("pthread_create", error))?;
    let (process, served, next) = (process(), Mutex::default(), OnceLock::new());
    let server = Server { process, name, served, next };
    if place.set(Box::new(server)).is_ok() {
        // The thread has the other end of this channel.
        let listener = never_inherited(listener);
        let _ = place.get().map(|server| sender.send((server, listener)));
    }
    Ok(())
}

impl Server {
    /// Answers each client as soon as it has sent its secret, so that a silent one delays no other.
    fn serve(&self, listener: &UnixListener) {
        let mut clients = VecDeque::<(UnixStream, Instant)>::new();
        loop {
            match listener.accept() {
                Ok((client, _)) => {
                    // A process of another user gets nothing.
                    let is_served = is_of_this_user(&client) == Ok(true);
                    if is_served && client.set_nonblocking(true).is_ok() {
                        clients.push_back((client, Instant::now()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    wait_for_one(listener, &clients);
                }
                // No descriptor is left, but those of silent clients.
                Err(_) if clients.is_empty() => thread::sleep(PAUSE),
                Err(_) => drop(clients.pop_front()),
            }
            clients.retain(|(client, since)| {
                // A process that goes, or sends another secret, gets nothing.
                since.elapsed() < PATIENCE && matches!(self.answer(client), Ok(false))
            });
            if clients.len() > CLIENTS {
                clients.pop_front();
            }
        }
    }

    /// Sends the file if the client has sent its secret. Whether the client is done.
    fn answer(&self, mut client: &UnixStream) -> Result<bool, Error> {
        let mut secret = Key::default();
        match client.read(&mut secret) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // It is sent as one.
            Ok(read) if read == secret.len() => {
                lock(&self.served)
                    .open(&secret)?
                    .map_or(Ok(()), |file| send_file(client, &file))?;
            }
            _ => {}
        }
        Ok(true)
    }
}

impl Served {
    /// The secret of a handle.
    fn share(
        &mut self,
        handles: &Handles,
        opens: Opens,
        sealed: &SealedTensors,
    ) -> Result<Key, Error> {
        let made = (handles.address(), opens);
        if let Some(secret) = self.made.get(&made) {
            self.shared.entry(*secret).and_modify(|shared| shared.expect(opens));
            return Ok(*secret);
        }
        let (secret, file) = (random()?, sealed.try_clone()?.into());
        let mut shared = Shared { file, opens, expected: 0, is_dropped: false };
        shared.expect(opens);
        self.shared.insert(secret, shared);
        if opens != Opens::Once {
            self.made.insert(made, secret);
        }
        Ok(secret)
    }

    fn open(&mut self, secret: &Key) -> Result<Option<OwnedFd>, Error> {
        let Some(shared) = self.shared.get_mut(secret) else { return Ok(None) };
        shared.expected = shared.expected.saturating_sub(1);
        if shared.opens != Opens::Once && (!shared.is_dropped || shared.expected > 0) {
            let file = shared.file.try_clone().map_err(|error| system("dup", error))?;
            return Ok(Some(file));
        }
        Ok(self.shared.remove(secret).map(|shared| shared.file))
    }

    /// Called when the sealed tensors are dropped.
    fn revoke(&mut self, handles: &Handles) {
        for opens in [Opens::Many, Opens::OnceAtLeast] {
            let Some(secret) = self.made.remove(&(handles.address(), opens)) else { continue };
            let Some(shared) = self.shared.get_mut(&secret) else { continue };
            shared.is_dropped = true;
            if shared.expected == 0 {
                self.shared.remove(&secret);
            }
        }
    }
}

/// Waits for the next client, or until one has sent its secret, or its time is over.
fn wait_for_one(listener: &UnixListener, clients: &VecDeque<(UnixStream, Instant)>) {
    let sockets = clients.iter().map(|(client, _)| client.as_fd());
    let sockets = std::iter::once(listener.as_fd()).chain(sockets);
    let sockets: Vec<_> = sockets.map(|socket| (socket, PollFlags::IN)).collect();
    let left = clients.front().map(|(_, since)| PATIENCE.saturating_sub(since.elapsed()));
    // Fails for more sockets than the limit of descriptors allows, for instance.
    if wait(&sockets, left.unwrap_or(Duration::MAX)).is_err() {
        thread::sleep(PAUSE);
    }
}

/// The abstract name of a socket: in no folder, and free again when the process ends.
fn name_of(key: &[u8]) -> Vec<u8> {
    [b"dlbridge-", key].concat()
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

fn random() -> Result<Key, Error> {
    let mut key = Key::default();
    // A call for so few bytes fills all of them.
    getrandom(&mut key[..], GetRandomFlags::empty()).map_err(|error| system("getrandom", error))?;
    Ok(key)
}

fn failed(reason: &str) -> Error {
    Error::Refused { by: "open_handle", reason: reason.into() }
}
