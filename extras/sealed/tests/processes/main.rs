//! Sealed tensors between processes: this program starts itself as the other side, with a socket as
//! its standard input. It lives through a script of steps, each of which may be its last one.
#![cfg(all(target_os = "linux", not(miri)))]

mod allocated;
mod channels;
mod limits;
mod other;
mod traced;

use std::fs;
use std::io::{Read, Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use dlbridge::{Access, DType, Tensor};
use dlbridge_sealed::{Builder, SealedTensors};
use other::{Other, Watch, alone};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What the maker of a file does, one step after the other.
const MAKER: [&str; 6] = ["allocated", "taken", "filled", "sealed", "mapped", "sent"];
/// What a reader does.
const READER: [&str; 5] = ["received", "read", "cloned", "private", "written"];
/// The size of the tensor.
const SIZE: i64 = 16 << 20;
/// Rounds of send, receive and drop.
const ROUNDS: usize = 3_000;
/// One round in so many seals a file of its own.
const SEALS: usize = 100;

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
        "handles" => limits::make_handles(),
        "limited" => limits::live(&last, &socket),
        "contained" => limits::contain(&socket),
        "allocator" => allocated::allocate(&last, &socket),
        "channel_maker" => channels::make(&socket, &step),
        "stuffer" => channels::stuff(&socket, &step),
        "channel_reader" => channels::read(&socket, &step),
        "maker" => make(&socket, &step),
        "reader" => read(&socket, &step),
        "victim" => traced::victim(&socket),
        "opener" => traced::opener(&socket),
        "hoarder" => hoard(&socket),
        "poor" => receive_without_descriptors(&socket),
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

/// Receives where no number is left for a descriptor, and sends the error.
fn receive_without_descriptors(mut socket: &UnixStream) {
    let none = Rlimit { current: Some(0), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, none).expect("a lower limit");
    let error = SealedTensors::receive(socket).map(drop).expect_err("no descriptor");
    socket.write_all(error.to_string().as_bytes()).expect("a socket");
}

/// Whether a maker's values are there; by blocks, which are compared quickly in a debug build too.
fn is_filled(tensor: &Tensor) -> bool {
    let bytes = tensor.as_slice::<u8>().expect("frozen");
    bytes.len() == SIZE as usize && bytes.chunks(1 << 16).all(|block| block == [7; 1 << 16])
}

/// Takes a private mapping of a tensor until the kernel refuses one, and sends the error.
fn hoard(socket: &UnixStream) {
    let sealed = SealedTensors::receive(socket).expect("a sealed file");
    let most = fs::read_to_string("/proc/sys/vm/max_map_count").expect("procfs");
    let mut tensors = Vec::with_capacity(most.trim().parse().expect("a number"));
    let error = loop {
        match sealed.private("x") {
            Ok(tensor) => tensors.push(tensor),
            Err(error) => break error,
        }
    };
    tensors.pop();
    let all = sealed.private_tensors().expect("one mapping");
    assert_eq!(all.len(), 1);
    drop((tensors, all));
    socket.try_clone().expect("a socket").write_all(error.to_string().as_bytes()).expect("it");
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
    drop((sealed, filling));
    expect_freed_with(tensor, &watch);
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
    expect_freed_with(tensor, &watch);
}

/// The last tensor of a file has its values, and the file is freed with it.
fn expect_freed_with(tensor: Tensor, watch: &Watch) {
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
    let sealed = SealedTensors::try_from(&Tensor::from(vec![1_i64, 2])).expect("a seal");
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
    let sealed = SealedTensors::try_from(&Tensor::from(vec![7_u8])).expect("a seal");
    let watch = Watch::of(std::process::id());
    sealed.send(&here).expect("a socket");
    drop((sealed, here));
    assert!(!watch.is_freed(), "while it is on its way");
    drop(there);
    assert!(watch.is_freed());
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
    let sealed = SealedTensors::try_from(&source).expect("a seal");
    let before = counts();
    for round in 0..ROUNDS {
        if round % SEALS == 0 {
            SealedTensors::try_from(&source).expect("a seal").send(&here).expect("a socket");
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

#[test]
fn a_receiver_without_descriptors_names_the_limit() {
    let _alone = alone();
    let mut poor = Other::start("poor", "");
    let x = Tensor::from(vec![7_u8]);
    SealedTensors::try_from(&x).expect("a seal").send(&poor.socket).expect("a socket");
    let mut error = String::new();
    poor.socket.read_to_string(&mut error).expect("its error");
    poor.kill();
    assert!(error.contains("limit of descriptors"), "{error}");
}

#[test]
fn the_limit_of_mappings_is_an_error_that_names_the_call_for_all_tensors() {
    let _alone = alone();
    let most = fs::read_to_string("/proc/sys/vm/max_map_count").expect("procfs");
    if most.trim().parse().is_ok_and(|most: usize| most > 100_000) {
        return eprintln!("skipped: this machine allows {} mappings", most.trim());
    }
    let x = Tensor::from(vec![7_u8]);
    let sealed = dlbridge_sealed::seal([("x", &x)]).expect("a seal");
    let mut hoarder = Other::start("hoarder", "");
    sealed.send(&hoarder.socket).expect("a socket");
    let mut error = String::new();
    hoarder.socket.read_to_string(&mut error).expect("its error");
    hoarder.kill();
    assert!(error.contains("vm.max_map_count") && error.contains("private_tensors"), "{error}");
}
