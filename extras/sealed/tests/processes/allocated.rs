//! A maker that allocates the missing pages of a sealed file for a moment, again and again, while it is opened.
#![allow(unsafe_code, reason = "a signal to a thread is a system call")]

use std::ffi::c_int;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use std::{ptr, thread};

use dlbridge_sealed::SealedTensors;
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::fs::{fallocate, fcntl_add_seals, fstat, memfd_create};

use crate::other::{Other, alone};

/// The header, then what is missing, then what an allocation passes for longer than it may take.
const HEADER: u64 = 4096;
const MISSING: u64 = 128 << 10;
const SIZE: u64 = HEADER + MISSING + (64 << 20);
const FILES: usize = 5;
const ROUNDS: u32 = 100;
/// The time between two signals.
const EVERY: Duration = Duration::from_micros(100);

extern "C" fn nothing(_signal: c_int) {}

/// Allocates all pages of a file. A signal interrupts each attempt, and the kernel takes the pages back.
pub(crate) fn allocate(path: &str, mut socket: &UnixStream) {
    let file = File::options().read(true).write(true).open(path).expect("the file");
    // SAFETY: zeros are a valid value.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
    // SAFETY: the handler does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGALRM, &action, ptr::null_mut()) }, 0);
    // SAFETY: this thread, which lives as long as the process.
    let this = unsafe { libc::pthread_self() };
    thread::spawn(move || {
        loop {
            thread::sleep(EVERY);
            // SAFETY: as above.
            unsafe { libc::pthread_kill(this, libc::SIGALRM) };
        }
    });
    socket.write_all(b".").expect("a socket");
    loop {
        let _ = fallocate(&file, FallocateFlags::empty(), 0, SIZE);
    }
}

/// A sealed file that lacks a part.
fn sealed_with_a_hole() -> File {
    let size = SIZE - HEADER;
    let json = format!(r#"{{"x":{{"dtype":"U8","shape":[{size}],"data_offsets":[0,{size}]}}}}"#);
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(file.expect("a memfd"));
    file.write_all(&(HEADER - 8).to_le_bytes()).expect("memory");
    file.write_all(format!("{json:0$}", HEADER as usize - 8).as_bytes()).expect("memory");
    file.write_all_at(&vec![7; (size - MISSING) as usize], HEADER + MISSING).expect("memory");
    let all = SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, all).expect("a seal");
    file
}

#[test]
fn pages_that_are_allocated_for_a_moment_do_not_stand_for_missing_ones() {
    let _alone = alone();
    for _ in 0..FILES {
        let file = sealed_with_a_hole();
        let open = || SealedTensors::try_from(OwnedFd::from(file.try_clone().expect("one more")));
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut maker = Other::start("allocator", &path);
        maker.wait();
        for round in 0..ROUNDS {
            // At each moment of an attempt.
            thread::sleep(EVERY / 4 * (round % 8));
            match open() {
                Err(error) => assert!(error.to_string().contains("all its pages"), "{error}"),
                // An attempt that no signal interrupted: its pages stay.
                Ok(_) => break,
            }
        }
        let last = open();
        maker.kill();
        let is_whole = fstat(&file).expect("a file").st_blocks as u64 * 512 >= SIZE;
        assert_eq!(last.is_ok(), is_whole);
    }
}
