//! The time to open a sealed file, compared with a named file, and of batches to other processes, which are this
//! program again with a socket as their standard input.
//! Invariant: every file has all its pages before the first round.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use dlbridge::DType;
use dlbridge_sealed::{Builder, Channel, Pool, SealedTensors};
use memmap2::Mmap;

const ROUNDS: usize = 301;
const SIZES: [i64; 4] = [1 << 10, 1 << 20, 64 << 20, 1 << 30];

/// A file in the machine's memory, which is removed in the end.
struct Named(PathBuf);

impl Drop for Named {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The ways of batches, and their sizes with how many one round sends.
const WAYS: [&str; 2] = ["Rust: bytes through a socket", "Rust: dlbridge by a Channel"];
const BATCHES: [(usize, usize); 4] =
    [(1 << 10, 40_000), (64 << 10, 20_000), (1 << 20, 2_000), (16 << 20, 100)];

/// Prints a line for each size and way: bytes, way, nanoseconds (the median).
pub fn measure() {
    let mut best = BTreeMap::new();
    // In turns, so that other load on the machine affects all.
    for _ in 0..3 {
        for (size, count) in BATCHES {
            for (readers, way) in [(1, 0), (1, 1), (3, 0), (3, 1)] {
                let found = send(way, size, count, readers);
                let before = best.entry((size, readers, way)).or_insert(found);
                *before = (before.0.min(found.0), before.1.min(found.1));
            }
        }
    }
    for ((size, readers, way), (seconds, cpu)) in best {
        println!("moved\t{size}\t{readers}\t{}\t{seconds:.9}\t{cpu:.9}", WAYS[way]);
    }
    for size in SIZES {
        let builder = Builder::new().tensor("x", DType::U8, &[size]);
        let mut filling = builder.allocate().expect("memory");
        filling.tensor("x").expect("there").as_slice_mut::<u8>().expect("all")[0] = 7;
        let sealed = filling.seal().expect("a seal");
        let named = Named(format!("/dev/shm/dlbridge-bench-{}", std::process::id()).into());
        // A copy by the kernel, with the header.
        let path = format!("/proc/self/fd/{}", sealed.as_fd().as_raw_fd());
        let mut source = File::open(path).expect("a file");
        let mut copy = File::create(&named.0).expect("a file");
        std::io::copy(&mut source, &mut copy).expect("memory");
        let at = sealed.nbytes() - size as usize;
        let (mut ours, mut by_hand) = (Vec::new(), Vec::new());
        // In turns, so that other load on the machine affects both.
        for _ in 0..ROUNDS {
            let file = sealed.as_fd().try_clone_to_owned().expect("a descriptor");
            ours.push(time(|| open(file)));
            by_hand.push(time(|| map(&named.0, at)));
        }
        for (who, mut times) in [("dlbridge", ours), ("a mapping by hand", by_hand)] {
            times.sort_unstable();
            println!("open\t{size}\tRust\t{who}\t{}", times[times.len() / 2]);
        }
    }
}

/// Nanoseconds of a function, without the drop of its result.
fn time<T>(work: impl FnOnce() -> T) -> u128 {
    let start = Instant::now();
    let result = black_box(work());
    let taken = start.elapsed().as_nanos();
    drop(result);
    taken
}

/// Checks a file, maps it, and reads the first element.
fn open(file: OwnedFd) -> (SealedTensors, u8) {
    let sealed = SealedTensors::try_from(file).expect("sealed");
    let first = sealed.tensor("x").expect("there").as_slice::<u8>().expect("frozen")[0];
    assert_eq!(first, 7);
    (sealed, first)
}

/// Opens a file by its name, maps it, and reads the same element: without a check, and without a
/// proof that no other process writes to it.
fn map(path: &Path, at: usize) -> (Mmap, u8) {
    let file = File::open(path).expect("there");
    // SAFETY: no other process has the name of this file.
    let map = unsafe { Mmap::map(&file) }.expect("memory");
    let first = map[at];
    assert_eq!(first, 7);
    (map, first)
}

/// Seconds of a batch that is filled, sent and read by each reader, and of the CPU for it.
pub fn send(way: usize, size: usize, count: usize, readers: usize) -> (f64, f64) {
    let program = std::env::current_exe().expect("this program");
    let words = [way, size, count].map(|number| number.to_string());
    let (mut sockets, mut children) = (Vec::new(), Vec::new());
    for _ in 0..readers {
        let (socket, theirs) = UnixStream::pair().expect("sockets");
        let mut command = Command::new(&program);
        command.arg("processes").args(&words).stdin(OwnedFd::from(theirs)).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a process");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        lines.next().expect("a line").expect("a start");
        sockets.push(socket);
        children.push((child, lines));
    }
    // Four batches of memory.
    let pool = Pool::new(4 * (size + size / 4 + (16 << 10)));
    let (start, before) = (Instant::now(), cpu());
    if way == 0 {
        let mut bytes = vec![0_u8; size];
        for number in 0..count {
            bytes.fill((number % 251) as u8);
            sockets.iter_mut().for_each(|socket| socket.write_all(&bytes).expect("a reader"));
        }
    } else {
        let ends = sockets.into_iter();
        let ends: Vec<_> =
            ends.map(|socket| Channel::with_pool(socket, &pool, usize::MAX, false)).collect();
        for number in 0..count {
            let mut loan = pool.loan(&[("x", DType::U8, &[size as i64])]).expect("memory");
            let mut x = loan.tensor("x").expect("there");
            x.as_slice_mut::<u8>().expect("exclusive").fill((number % 251) as u8);
            drop(x);
            let ready = loan.ready().expect("filled");
            ends.iter().for_each(|end| end.send(&ready).expect("a reader"));
        }
    }
    let mut used = cpu() - before;
    for (mut child, mut lines) in children {
        used += lines.next().expect("a line").expect("text").parse::<f64>().expect("seconds");
        assert!(child.wait().expect("a process").success());
    }
    (start.elapsed().as_secs_f64() / count as f64, used / count as f64)
}

/// The other process: reads the ends of each batch, and a byte of each page.
pub fn read(way: usize, size: usize, count: usize) {
    let mut socket =
        UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().expect("a socket"));
    let channel = Channel::new(socket.try_clone().expect("a socket"));
    println!("ready");
    let (before, mut bytes) = (cpu(), vec![0; if way == 0 { size } else { 0 }]);
    for number in 0..count {
        let value = (number % 251) as u8;
        let places = (0..size).step_by(4096).chain([size - 1]);
        if way == 0 {
            socket.read_exact(&mut bytes).expect("a batch");
            places.for_each(|place| assert_eq!(bytes[place], value));
        } else {
            let message = channel.receive().expect("a frame").expect("a batch");
            let x = message.tensor("x").expect("there");
            let view = x.view::<u8>().expect("bytes");
            places.for_each(|place| assert_eq!(view.get([place]), Some(value)));
        }
    }
    println!("{}", cpu() - before);
}

/// Seconds of the CPU that this thread used, its process's only one.
fn cpu() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("procfs");
    text.split(' ').next().expect("a number").parse::<f64>().expect("nanoseconds") / 1e9
}
