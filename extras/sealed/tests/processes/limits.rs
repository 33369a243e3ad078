//! Channels and sealed files of a process that has little: descriptors, addresses, memory.

use std::fs::{self, File};
use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use dlbridge::{DType, Error, Tensor};
use dlbridge_sealed::{Builder, Channel, Opens, SealedTensors, open_handle};
use rustix::cmsg_space;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::other::{Other, alone};

const LIMITS: [&str; 3] = ["descriptors", "addresses", "locked"];
const SIZE: i64 = 64 << 20;
const HANDLES: usize = 10_000;
const OPENED: usize = 100;
/// The memory of a container, in bytes.
const CONTAINER: usize = 64 << 20;

/// Receives a message below a limit, and loans memory.
pub(crate) fn live(limit: &str, socket: &UnixStream) {
    let channel = Channel::new(socket.try_clone().expect("a socket"));
    // The next descriptor would have this number.
    let next = socket.try_clone().expect("a socket").as_raw_fd() as u64;
    let (resource, current) = match limit {
        "descriptors" => (Resource::Nofile, next),
        "addresses" => (Resource::As, addresses() + (16 << 20)),
        _ => (Resource::Memlock, 0),
    };
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(current), maximum }).expect("a lower limit");
    let received = channel.receive();
    let loan = channel.loan(&[("x", DType::U8, &[SIZE])]).map(drop);
    match limit {
        "descriptors" => {
            let error = received.map(drop).expect_err("no descriptor").to_string();
            assert!(error.contains("limit of descriptors"), "{error}");
            assert!(loan.expect_err("no descriptor").to_string().contains("open files"));
        }
        "addresses" => {
            let error = received.map(drop).expect_err("no addresses").to_string();
            assert!(error.contains("mmap"), "{error}");
            assert!(matches!(loan, Err(Error::OutOfMemory { .. })), "{loan:?}");
        }
        _ => {
            let message = received.expect("a frame").expect("a message");
            assert_eq!((message.nbytes(), loan), (SIZE as usize, Ok(())));
        }
    }
}

/// The bytes of addresses that this process has.
fn addresses() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").expect("procfs");
    let pages = text.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4096
}

/// Reads a message and sealed tensors that are larger than its container, and refuses a file that would fill it.
pub(crate) fn contain(mut socket: &UnixStream) {
    socket.read_exact(&mut [0]).expect("the container");
    let sealed = SealedTensors::receive(socket).expect("a sealed file");
    let x = sealed.tensor("x").expect("there");
    assert!(x.as_slice::<u8>().expect("frozen").iter().step_by(4096).all(|&byte| byte == 7));
    for _ in 0..2 {
        let error = SealedTensors::receive(socket).map(drop).expect_err("a hole").to_string();
        assert!(error.contains("all its pages"), "{error}");
    }
}

/// Makes more handles than there may be descriptors: each of one use has one.
pub(crate) fn make_handles() {
    let sealed = SealedTensors::try_from(&Tensor::from(vec![1_u8, 2])).expect("memory");
    let many = sealed.handle(Opens::Many).expect("a server");
    // For sockets, and what comes through them.
    let spare: Vec<_> = (0..8).map(|_| sealed.try_clone().expect("a descriptor")).collect();
    let mut once = Vec::new();
    let mut make = || sealed.handle(Opens::Once).map(|handle| once.push(handle));
    if let Some(error) = (0..HANDLES).find_map(|_| make().err()) {
        assert!(error.to_string().contains("open files"), "{error}");
    }
    drop(spare);
    assert!(once.iter().take(OPENED).all(|handle| open_handle(handle).is_ok()));
    assert!(once.iter().take(OPENED).all(|handle| open_handle(handle).is_err()));
    assert!((0..HANDLES).all(|_| sealed.handle(Opens::Many).as_ref() == Ok(&many)));
    assert!(open_handle(&many).is_ok());
}

#[test]
fn a_process_at_a_limit_gets_an_error() {
    let _alone = alone();
    for limit in LIMITS {
        let mut other = Other::start("limited", limit);
        let channel = Channel::new(other.socket.try_clone().expect("a socket"));
        channel.loan(&[("x", DType::U8, &[SIZE])]).expect("memory").send().expect("a reader");
        assert!(other.child.wait().expect("a process").success(), "{limit}");
    }
}

#[test]
fn ten_thousand_handles_are_valid_or_errors() {
    let _alone = alone();
    let mut other = Other::start("handles", "");
    assert!(other.child.wait().expect("a process").success());
}

/// A container with a limit of memory, where this process may make one. It is removed in the end.
struct Container(PathBuf);

impl Container {
    fn new() -> Option<Self> {
        let roots =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        roots.into_iter().find_map(|(root, limit)| {
            let path = PathBuf::from(root).join(format!("dlbridge-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let container = Self(path);
            fs::write(container.0.join(limit), CONTAINER.to_string()).ok()?;
            Some(container)
        })
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_reader_in_a_container_reads_more_than_its_memory_and_allocates_none() {
    let _alone = alone();
    let Some(container) = Container::new() else {
        return eprintln!("skipped: no container with a memory limit can be made here");
    };
    let mut other = Other::start("contained", "");
    let entered = fs::write(container.0.join("cgroup.procs"), other.child.id().to_string());
    entered.expect("the container takes a process");
    (&other.socket).write_all(b".").expect("a socket");
    let size = 4 * CONTAINER;
    let mut filling =
        Builder::new().tensor("x", DType::U8, &[size as i64]).allocate().expect("memory");
    filling.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(7);
    filling.seal().expect("a seal").send(&other.socket).expect("a socket");
    for is_read_only in [false, true] {
        let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let mut file = File::from(file.expect("a memfd"));
        file.write_all(&[0; 4096]).expect("memory");
        ftruncate(&file, size as u64).expect("a hole");
        let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        fcntl_add_seals(&file, all).expect("a seal");
        if is_read_only {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            file = File::open(path).expect("the same file");
        }
        send(&other.socket, &file.into());
    }
    assert!(other.child.wait().expect("a process").success(), "killed for its memory, or failed");
}

/// Sends a descriptor beside a byte.
fn send(socket: &UnixStream, file: &OwnedFd) {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut control, SendFlags::NOSIGNAL);
    assert_eq!(sent, Ok(1));
}
