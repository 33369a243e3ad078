//! Sealed tensors between processes: this program starts itself as the other side, with a socket as
//! its standard input. It lives through a script of steps, each of which may be its last one.
#![cfg(all(feature = "sealed", target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "attacks on other processes are made by system calls")]

use std::fs;
use std::io::{Read, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dlbridge::sealed::{Builder, SealedTensors};
use dlbridge::{Access, DType, Tensor};
use rustix::fs::inotify;
use rustix::io::Errno;

/// What the maker of a file does, one step after the other.
const MAKER: [&str; 6] = ["allocated", "taken", "filled", "sealed", "mapped", "sent"];
/// What a reader does.
const READER: [&str; 5] = ["received", "read", "cloned", "private", "written"];
/// The size of the tensor.
const SIZE: i64 = 16 << 20;
/// Rounds of send, receive and drop.
const ROUNDS: usize = if cfg!(debug_assertions) { 20_000 } else { 100_000 };
/// One round in so many seals a file of its own.
const SEALS: usize = 100;

/// Another process of this program, which is killed in the end.
struct Other {
    child: Child,
    socket: UnixStream,
}

impl Other {
    /// Starts a process that stops after a step.
    fn start(role: &str, last: &str) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "other_side", "--ignored", "--nocapture"])
            .env("DLBRIDGE_ROLE", role)
            .env("DLBRIDGE_LAST", last)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self { child, socket }
    }

    /// Waits until it has done its last step. Bytes beside descriptors come before.
    fn wait(&mut self) {
        let mut done = [0];
        while done != *b"." {
            self.socket.read_exact(&mut done).expect("the last step");
        }
    }

    fn kill(mut self) {
        self.child.kill().expect("a process");
        self.child.wait().expect("a process");
    }
}

/// The process that [`Other`] starts.
#[test]
#[ignore = "the other process: for the tests below"]
fn other_side() {
    let role = std::env::var("DLBRIDGE_ROLE").expect("started by a test");
    let last = std::env::var("DLBRIDGE_LAST").expect("started by a test");
    let socket = UnixStream::from(stdin().as_fd().try_clone_to_owned().expect("a socket"));
    let step = |name: &str| {
        if name == last {
            (&socket).write_all(b".").expect("a socket");
            // Until it is killed.
            let _ = (&socket).read(&mut [0]);
            std::process::exit(0);
        }
    };
    match &*role {
        "maker" => make(&socket, &step),
        "reader" => read(&socket, &step),
        "attacker" => attack(&socket, &last),
        role => panic!("no role {role}"),
    }
}

fn make(socket: &UnixStream, step: &dyn Fn(&str)) {
    let mut filling = Builder::new().tensor("x", DType::U8, &[SIZE]).allocate().expect("memory");
    step("allocated");
    let mut tensor = filling.tensor("x").expect("there");
    step("taken");
    tensor.as_slice_mut::<u8>().expect("exclusive").fill(7);
    step("filled");
    drop(tensor);
    let sealed = filling.seal().expect("a seal");
    step("sealed");
    let tensor = sealed.tensor("x").expect("there");
    step("mapped");
    sealed.send(socket).expect("a socket");
    step("sent");
    drop(tensor);
}

fn read(socket: &UnixStream, step: &dyn Fn(&str)) {
    let sealed = SealedTensors::receive(socket).expect("a sealed file");
    step("received");
    let tensor = sealed.tensor("x").expect("there");
    assert_eq!(tensor.access(), Access::Frozen);
    assert!(is_filled(&tensor));
    step("read");
    let clone = sealed.try_clone().expect("a descriptor");
    step("cloned");
    let mut private = clone.private("x").expect("there");
    step("private");
    private.as_slice_mut::<u8>().expect("exclusive").fill(8);
    step("written");
}

/// Whether a maker's values are there; by blocks, which are compared quickly in a debug build too.
fn is_filled(tensor: &Tensor) -> bool {
    let bytes = tensor.as_slice::<u8>().expect("frozen");
    bytes.len() == SIZE as usize && bytes.chunks(1 << 16).all(|block| block == [7; 1 << 16])
}

/// Writes to memory of the parent: by `process_vm_writev`, then as a debugger does.
fn attack(socket: &UnixStream, address: &str) {
    let address: usize = address.parse().expect("an address");
    let parent = std::os::unix::process::parent_id();
    let mut byte = 0xff_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote = libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: 1 };
    // SAFETY: one byte of this process is read.
    let written =
        unsafe { libc::process_vm_writev(parent as libc::pid_t, &local, 1, &remote, 1, 0) };
    let error = std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    assert_eq!(written, -1);
    let memory = fs::File::options().write(true).open(format!("/proc/{parent}/mem"));
    let forced =
        memory.map(|file| std::os::unix::fs::FileExt::write_at(&file, &[0xff], address as u64));
    println!("{forced:?}");
    (&*socket).write_all(&error.to_le_bytes()).expect("a socket");
}

/// Tests that open files of their own would change the counts of others.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kernel's word that a file is freed: no process has a descriptor or a mapping of it.
struct Watch(OwnedFd);

impl Watch {
    /// Watches the memory file that a process has.
    fn of(process: u32) -> Self {
        let folder = fs::read_dir(format!("/proc/{process}/fd")).expect("procfs");
        let mut paths = folder.map(|entry| entry.expect("a descriptor").path());
        let is_ours = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:dlbridge"))
        };
        let path = paths.find(is_ours).expect("a memory file");
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK).expect("inotify");
        inotify::add_watch(&inotify, path, inotify::WatchFlags::DELETE_SELF).expect("a watch");
        Self(inotify)
    }

    fn is_freed(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 256];
        match inotify::Reader::new(&self.0, &mut buffer).next() {
            Ok(event) => event.events().contains(inotify::ReadFlags::DELETE_SELF),
            Err(error) => {
                assert_eq!(error, Errno::AGAIN);
                false
            }
        }
    }
}

#[test]
fn a_maker_that_is_killed_at_any_step_leaves_no_memory() {
    let _alone = alone();
    for last in MAKER {
        let mut maker = Other::start("maker", last);
        maker.wait();
        let watch = Watch::of(maker.child.id());
        assert!(!watch.is_freed(), "{last}");
        maker.kill();
        assert!(watch.is_freed(), "{last}");
    }
}

#[test]
fn a_reader_that_is_killed_at_any_step_leaves_no_memory_and_changes_none() {
    let _alone = alone();
    let mut filling = Builder::new().tensor("x", DType::U8, &[SIZE]).allocate().expect("memory");
    filling.tensor("x").expect("there").as_slice_mut::<u8>().expect("exclusive").fill(7);
    let sealed = filling.seal().expect("a seal");
    let watch = Watch::of(std::process::id());
    for last in READER {
        let mut reader = Other::start("reader", last);
        sealed.send(&reader.socket).expect("a socket");
        reader.wait();
        reader.kill();
    }
    let tensor = sealed.tensor("x").expect("there");
    assert!(is_filled(&tensor));
    drop((sealed, filling));
    assert!(!watch.is_freed(), "while a tensor is alive");
    drop(tensor);
    assert!(watch.is_freed());
}

#[test]
fn a_reader_outlives_the_maker() {
    let _alone = alone();
    let mut maker = Other::start("maker", "sent");
    let sealed = SealedTensors::receive(&maker.socket).expect("a sealed file");
    maker.wait();
    maker.kill();
    let watch = Watch::of(std::process::id());
    let tensor = sealed.tensor("x").expect("there");
    drop(sealed);
    assert!(is_filled(&tensor));
    assert!(!watch.is_freed(), "while a tensor is alive");
    drop(tensor);
    assert!(watch.is_freed());
}

/// A program in Python that receives a descriptor and sends it back.
const PYTHON: &str = "
import os, socket
peer = socket.socket(fileno=0)
message, [descriptor], *_ = socket.recv_fds(peer, 1, 1)
assert len(message) == 1 and b'tensor' in os.pread(descriptor, 256, 0)
socket.send_fds(peer, [b'.'], [descriptor])
";

#[test]
fn python_receives_what_rust_sends_and_sends_it_back() {
    let _alone = alone();
    let (here, theirs) = UnixStream::pair().expect("sockets");
    let program = ["-c", PYTHON];
    let python = Command::new("python3").args(program).stdin(OwnedFd::from(theirs)).spawn();
    let Ok(mut python) = python else { return eprintln!("skipped: no python3") };
    let sealed = Tensor::from(vec![1_i64, 2]).seal().expect("a seal");
    sealed.send(&here).expect("a socket");
    let received = SealedTensors::receive(&here).expect("the same file");
    assert!(python.wait().expect("a process").success());
    let tensor = received.tensor("tensor").expect("there");
    assert_eq!(tensor.as_slice::<i64>(), Ok(&[1, 2][..]));
}

#[test]
fn a_file_in_a_socket_is_freed_with_it() {
    let _alone = alone();
    let (here, there) = UnixStream::pair().expect("sockets");
    let sealed = Tensor::from(vec![7_u8]).seal().expect("a seal");
    let watch = Watch::of(std::process::id());
    sealed.send(&here).expect("a socket");
    drop((sealed, here));
    assert!(!watch.is_freed(), "while it is on its way");
    drop(there);
    assert!(watch.is_freed());
}

#[test]
fn another_process_changes_no_sealed_memory() {
    let _alone = alone();
    let sealed = Tensor::from(vec![7_u8; 100]).seal().expect("a seal");
    let address = sealed.tensor("tensor").expect("there").data_ptr().addr();
    let mut attacker = Other::start("attacker", &address.to_string());
    let mut error = [0; 4];
    attacker.socket.read_exact(&mut error).expect("its result");
    attacker.kill();
    let error = Errno::from_raw_os_error(i32::from_le_bytes(error));
    // Where processes may not be traced, it is refused before the mapping is looked at.
    assert!([Errno::FAULT, Errno::PERM].contains(&error), "{error}");
    // What a debugger forces into this process is in this process alone.
    let again = SealedTensors::try_from(OwnedFd::from(sealed)).expect("still sealed");
    let tensor = again.tensor("tensor").expect("there");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[7; 100][..]));
}

#[test]
fn no_descriptor_and_no_mapping_is_leaked() {
    let count = |path: &str| match path.strip_suffix("fd") {
        Some(_) => fs::read_dir(path).expect("procfs").count(),
        None => fs::read_to_string(path).expect("procfs").matches("memfd:dlbridge").count(),
    };
    let _alone = alone();
    let counts = || ["/proc/self/fd", "/proc/self/maps"].map(count);
    let (here, there) = UnixStream::pair().expect("sockets");
    let source = Tensor::from(vec![1.0_f32; 16]);
    let sealed = source.seal().expect("a seal");
    let before = counts();
    for round in 0..ROUNDS {
        if round % SEALS == 0 {
            source.seal().expect("a seal").send(&here).expect("a socket");
            let mut alive = Builder::new().tensor("x", DType::U8, &[1]).allocate().expect("memory");
            let tensor = alive.tensor("x").expect("there");
            assert!(alive.seal().is_err());
            drop((alive, tensor));
            let pipe = rustix::pipe::pipe().expect("a pipe");
            assert!(SealedTensors::try_from(pipe.0).is_err());
        } else {
            sealed.send(&here).expect("a socket");
        }
        let received = SealedTensors::receive(&there).expect("a sealed file");
        let (clone, tensor) = (received.try_clone().expect("one more"), received.tensor("tensor"));
        let private = clone.private("tensor").expect("there");
        assert_eq!(private.as_slice::<f32>(), tensor.expect("there").as_slice());
    }
    assert_eq!(counts(), before);
}
