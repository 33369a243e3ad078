//! A parent that traces the other process: what a debugger can change, and which system calls opening
//! a file makes.
#![allow(unsafe_code, reason = "tracing is made of system calls")]

use std::ffi::{c_int, c_long, c_uint};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::ptr;

use dlbridge::{DType, Tensor};
use dlbridge_sealed::{Builder, SealedTensors};
use memmap2::MmapOptions;
use rustix::fs::{SealFlags, fcntl_add_seals, ftruncate};
use rustix::io::{Errno, pwrite};
use rustix::process::getppid;
use rustix::thread::gettid;

use crate::other::{Other, alone};

/// Sizes of files whose opening is compared, in bytes.
const SIZES: [i64; 3] = [1 << 10, 1 << 20, 64 << 20];
/// The fault of one address makes present up to so many bytes around it, by default.
const AROUND: usize = 64 << 10;

fn send(mut socket: &UnixStream, numbers: &[u64]) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    socket.write_all(&bytes).expect("a socket");
}

fn receive<const N: usize>(mut socket: &UnixStream) -> [u64; N] {
    [(); N].map(|()| {
        let mut bytes = [0; 8];
        socket.read_exact(&mut bytes).expect("a number");
        u64::from_le_bytes(bytes)
    })
}

/// Tells where its tensors are, and after each number that it receives, which bytes they begin with.
pub(crate) fn victim(socket: &UnixStream) {
    let sealed = SealedTensors::receive(socket).expect("a sealed file");
    let tensors = [sealed.tensor("tensor"), sealed.private("tensor")];
    let [frozen, private] = tensors.map(|tensor| tensor.expect("there"));
    let addresses = [&frozen, &private].map(|tensor| tensor.data_ptr().addr() as u64);
    let number = sealed.as_fd().as_raw_fd() as u64;
    send(socket, &[addresses[0], addresses[1], number, gettid().as_raw_nonzero().get() as u64]);
    loop {
        receive::<1>(socket);
        let again = sealed.private("tensor").expect("there");
        let bytes = [&frozen, &private, &again]
            .map(|tensor| u64::from(tensor.as_slice::<u8>().expect("readable")[0]));
        send(socket, &bytes);
    }
}

/// Opens each file that it receives, between two calls that mark it.
pub(crate) fn opener(socket: &UnixStream) {
    // What the first call allocates is left out.
    drop(SealedTensors::receive(socket).expect("a sealed file"));
    send(socket, &[gettid().as_raw_nonzero().get() as u64]);
    loop {
        let sealed = SealedTensors::receive(socket).expect("a sealed file");
        let file = OwnedFd::from(sealed);
        let _ = getppid();
        let sealed = SealedTensors::try_from(file).expect("sealed");
        let tensor = sealed.tensor("tensor").expect("there");
        let _ = getppid();
        send(socket, &[present(tensor.data_ptr().addr()) as u64]);
        let bytes = tensor.as_slice::<u8>().expect("frozen");
        assert_eq!(bytes[bytes.len() - 1], 7);
    }
}

/// The bytes of a mapping of this process that its page tables have.
fn present(address: usize) -> usize {
    let text = fs::read_to_string("/proc/self/smaps").expect("procfs");
    let mut lines = text.lines().skip_while(|line| !is_of(line, address));
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
}

/// Whether a line of `maps` or `smaps` is that of the mapping of an address.
fn is_of(line: &str, address: usize) -> bool {
    let ends = line.split(' ').next().and_then(|ends| ends.split_once('-'));
    let ends = ends.map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
    matches!(ends, Some([Ok(start), Ok(end)]) if (start..end).contains(&address))
}

/// A thread of another process that this thread traces. Dropping it lets the thread continue.
struct Traced(libc::pid_t);

impl Traced {
    /// Stops a thread.
    fn stop(thread: u64) -> io::Result<Self> {
        let traced = Self(thread as libc::pid_t);
        traced.call(libc::PTRACE_SEIZE, 0, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        traced.call(libc::PTRACE_INTERRUPT, 0, 0)?;
        traced.wait();
        Ok(traced)
    }

    fn call(&self, request: c_uint, address: usize, data: usize) -> io::Result<c_long> {
        let [address, data] = [address, data].map(ptr::without_provenance_mut::<std::ffi::c_void>);
        // SAFETY: a request of this test, which reads and writes no memory of this process but what
        // `data` is to be for it.
        let result = unsafe { libc::ptrace(request, self.0, address, data) };
        if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }

    fn wait(&self) -> c_int {
        let mut status = 0;
        // SAFETY: the status is written.
        let stopped = unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) };
        assert_eq!(stopped, self.0);
        assert!(libc::WIFSTOPPED(status), "{status}");
        status
    }

    /// The numbers of the next system calls, until the second call of `getppid`.
    fn calls(&self) -> Vec<u64> {
        let (mut calls, mut marks) = (Vec::new(), 0);
        while marks < 2 {
            self.call(libc::PTRACE_SYSCALL, 0, 0).expect("it continues");
            if libc::WSTOPSIG(self.wait()) != libc::SIGTRAP | 0x80 {
                continue;
            }
            let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
            let size = size_of::<libc::ptrace_syscall_info>();
            // SAFETY: `info` is written, up to its size.
            let written = unsafe {
                libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, self.0, size, info.as_mut_ptr())
            };
            assert!(written > 0, "{}", io::Error::last_os_error());
            // SAFETY: it was zeroed, and all zeros are a valid value.
            let info = unsafe { info.assume_init() };
            if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
                continue;
            }
            // SAFETY: at the entry of a call.
            match unsafe { info.u.entry.nr } {
                call if call == libc::SYS_getppid as u64 => marks += 1,
                call if marks == 1 => calls.push(call),
                _ => {}
            }
        }
        calls
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // A killed process is not traced any more.
        let _ = self.call(libc::PTRACE_DETACH, 0, 0);
    }
}

fn process_vm_writev(process: u32, address: u64) -> Result<(), Errno> {
    let mut byte = 0xff_u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let remote =
        libc::iovec { iov_base: ptr::without_provenance_mut(address as usize), iov_len: 1 };
    // SAFETY: one byte of this process is read.
    let written =
        unsafe { libc::process_vm_writev(process as libc::pid_t, &local, 1, &remote, 1, 0) };
    if written == 1 { Ok(()) } else { Err(last_error()) }
}

fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).expect("an error of the system")
}

/// Writes as a debugger does, by both ways that write to pages without the right to write.
fn force(process: u32, thread: u64, address: u64) -> [Result<(), Errno>; 2] {
    let errno = |error: io::Error| Errno::from_io_error(&error).expect("an error of the system");
    let memory = File::options().write(true).open(format!("/proc/{process}/mem"));
    let by_file = memory.and_then(|file| file.write_at(&[0xfe], address)).map(drop).map_err(errno);
    let poke = |traced: Traced| traced.call(libc::PTRACE_POKEDATA, address as usize, 0xfd);
    [by_file, Traced::stop(thread).and_then(poke).map(drop).map_err(errno)]
}

#[test]
fn no_debugger_changes_a_frozen_tensor() {
    let _alone = alone();
    let sealed = SealedTensors::try_from(&Tensor::from(vec![7_u8; 10_000])).expect("a seal");
    let victim = Other::start("victim", "");
    sealed.send(&victim.socket).expect("a socket");
    let process = victim.child.id();
    let [frozen, private, number, thread] = receive(&victim.socket);
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).expect("procfs");
    let line = maps.lines().find(|line| is_of(line, frozen as usize)).expect("a mapping");
    // Before Linux 6.7, a sealed file has no shared mappings.
    let is_shared = MmapOptions::new().map_raw_read_only(&sealed.as_fd()).is_ok();
    assert_eq!(line.contains("r--s"), is_shared, "{line}");
    let by_call = process_vm_writev(process, frozen);
    if by_call == Err(Errno::PERM) {
        victim.kill();
        return eprintln!("skipped: processes may not be traced here");
    }
    assert_eq!(by_call, Err(Errno::FAULT));
    let forced = force(process, thread, frozen);
    if is_shared {
        assert_eq!(forced, [Err(Errno::IO), Err(Errno::IO)]);
    }
    let expected = if is_shared { 7 } else { 0xfd };
    send(&victim.socket, &[0]);
    assert_eq!(receive(&victim.socket), [expected, 7, 7], "after {forced:?}");
    // Memory of that process alone, which every debugger can change.
    assert_eq!(process_vm_writev(process, private), Ok(()));
    assert_eq!(force(process, thread, private), [Ok(()), Ok(())]);
    send(&victim.socket, &[0]);
    assert_eq!(receive(&victim.socket), [expected, 0xfd, 7]);
    // The other side's own descriptor, opened for writing.
    let path = format!("/proc/{process}/fd/{number}");
    let file = File::options().read(true).write(true).open(path).expect("opened");
    assert_eq!(fcntl_add_seals(&file, SealFlags::empty()), Err(Errno::PERM));
    assert_eq!(pwrite(&file, b"x", 64), Err(Errno::PERM));
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    victim.kill();
    let tensor = sealed.tensor("tensor").expect("there");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[7; 10_000][..]));
}

#[test]
fn opening_makes_few_system_calls_for_every_size_and_reads_the_header_alone() {
    let _alone = alone();
    let opener = Other::start("opener", "");
    SealedTensors::try_from(&Tensor::from(vec![7_u8]))
        .expect("a seal")
        .send(&opener.socket)
        .expect("a socket");
    let [thread] = receive(&opener.socket);
    let mut found = Vec::new();
    for size in SIZES {
        let mut filling =
            Builder::new().tensor("tensor", DType::U8, &[size]).allocate().expect("memory");
        filling.tensor("tensor").expect("there").as_slice_mut::<u8>().expect("all").fill(7);
        let sealed = filling.seal().expect("a seal");
        let Ok(traced) = Traced::stop(thread) else {
            opener.kill();
            return eprintln!("skipped: processes may not be traced here");
        };
        sealed.send(&opener.socket).expect("a socket");
        found.push(traced.calls());
        drop(traced);
        let [present] = receive(&opener.socket);
        assert!(present as usize <= AROUND, "{present} of {size} bytes");
    }
    opener.kill();
    for calls in found {
        // The seals, the file system, the size, the pages, one or two attempts to map, and advice for core
        // dumps. Pages are counted by two calls, which a tracer delays, so that three others look at them.
        assert!((7..=14).contains(&calls.len()), "{calls:?}");
        assert!(calls.contains(&(libc::SYS_mmap as u64)), "{calls:?}");
    }
}
