//! The thread of a process that sends sealed files to those that know a secret of them.
//! What a handle is belongs to `handle`.
//! Invariant: a file is sent only to a process of this user that knows a secret of it.

use std::collections::{HashMap, VecDeque};
use std::io::{ErrorKind, Read};
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt;
use std::os::fd::{AsFd, OwnedFd};
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use dlbridge::Error;
use rustix::event::PollFlags;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::fork::{never_inherited, process};
use crate::memfd::is_of_this_user;
use crate::socket::{send_file, wait};
use crate::{lock, system};

/// The name of a socket, or a secret.
pub(crate) type Key = [u8; 16];

/// The most clients that the maker waits for at once, and how long it waits for each.
const CLIENTS: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the maker waits when it has no descriptor left, before it looks again.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// How often a [handle](crate::SealedTensors::handle) opens its tensors.
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
pub(crate) struct Server {
    /// The process of the thread, by its [forks](process): a child in another namespace may have the number of its parent.
    /// A forked child has a copy of this struct without the thread, whose lock may be held.
    process: u64,
    pub(crate) name: Key,
    pub(crate) served: Mutex<Served>,
    /// The server of a forked child, or of a child of that.
    next: Next,
}

type Next = OnceLock<Box<Server>>;

#[derive(Default, Debug)]
pub(crate) struct Served {
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
pub(crate) fn server() -> Result<&'static Server, Error> {
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
    /// The secret of a handle that opens a file.
    pub(crate) fn share(
        &mut self,
        handles: &Handles,
        opens: Opens,
        file: impl FnOnce() -> Result<OwnedFd, Error>,
    ) -> Result<Key, Error> {
        let made = (handles.address(), opens);
        if let Some(secret) = self.made.get(&made) {
            self.shared.entry(*secret).and_modify(|shared| shared.expect(opens));
            return Ok(*secret);
        }
        let (secret, file) = (random()?, file()?);
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
pub(crate) fn name_of(key: &[u8]) -> Vec<u8> {
    [b"dlbridge-", key].concat()
}

fn random() -> Result<Key, Error> {
    let mut key = Key::default();
    // A call for so few bytes fills all of them.
    getrandom(&mut key[..], GetRandomFlags::empty()).map_err(|error| system("getrandom", error))?;
    Ok(key)
}
