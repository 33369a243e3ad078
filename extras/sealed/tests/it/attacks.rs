//! Attempts to change a sealed file or its memory from the process that has its descriptor: each one
//! of the table in `SAFETY.md`. Those of other processes are in `processes/`.
#![allow(unsafe_code, reason = "mappings are made as an attacker makes them")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use dlbridge::Tensor;
use dlbridge_sealed::{Builder, Filling, SealedTensors};
use memmap2::MmapOptions;
use rustix::fs::{
    FallocateFlags, Mode, OFlags, SealFlags, copy_file_range, fallocate, fcntl_add_seals, fstat,
    ftruncate, open,
};
use rustix::io::{Errno, pwrite, write};
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};
use rustix::pipe::{IoSliceRaw, SpliceFlags, pipe, splice, vmsplice};

const VALUES: [i64; 3] = [1, 2, 3];

/// Sealed tensors, a descriptor of their own and one of the same file opened again.
fn sealed() -> (SealedTensors, [OwnedFd; 2]) {
    let sealed = SealedTensors::try_from(&Tensor::from(VALUES.to_vec())).expect("a seal");
    let same = sealed.as_fd().try_clone_to_owned().expect("a descriptor");
    let path = format!("/proc/self/fd/{}", same.as_raw_fd());
    let again = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("opened again");
    (sealed, [same, again])
}

/// The tensor is what it was, in the mapping that was there and in a new one.
fn check(sealed: &SealedTensors) {
    let again = OwnedFd::from(sealed.try_clone().expect("a descriptor"));
    let again = SealedTensors::try_from(again).expect("still sealed");
    for tensors in [sealed, &again] {
        let tensor = tensors.tensor("tensor").expect("there");
        assert_eq!(tensor.as_slice::<i64>(), Ok(&VALUES[..]));
    }
}

#[test]
fn no_call_writes_to_a_sealed_file() {
    let (sealed, files) = sealed();
    for file in &files {
        assert_eq!(pwrite(file, b"x", 64), Err(Errno::PERM));
        assert_eq!(write(file, b"x"), Err(Errno::PERM));
        let mut source = 0;
        let copied = copy_file_range(&files[0], Some(&mut source), file, None, 1);
        assert!(copied.is_err(), "{copied:?}");
        let (reads, writes) = pipe().expect("a pipe");
        write(&writes, b"x").expect("a pipe");
        assert_eq!(splice(&reads, None, file, None, 1, SpliceFlags::empty()), Err(Errno::PERM));
        let punched =
            fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 64);
        assert_eq!(punched, Err(Errno::PERM));
    }
    check(&sealed);
}

#[test]
fn no_call_changes_the_size_of_a_sealed_file() {
    let (sealed, files) = sealed();
    let size = sealed.nbytes() as u64;
    for file in &files {
        for other in [0, size - 1, size + 1] {
            assert_eq!(ftruncate(file, other), Err(Errno::PERM), "{other}");
        }
        let grown = fallocate(file, FallocateFlags::empty(), 0, size + 1);
        assert_eq!(grown, Err(Errno::PERM));
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let emptied = File::options().write(true).truncate(true).open(path);
        assert_eq!(emptied.map(drop).map_err(|e| e.kind()), Err(io::ErrorKind::PermissionDenied));
    }
    check(&sealed);
}

#[test]
fn no_mapping_of_a_sealed_file_is_shared_and_writable() {
    let (sealed, files) = sealed();
    for file in &files {
        let map = MmapOptions::new().map_raw(file);
        assert_eq!(map.map(drop).map_err(|e| e.kind()), Err(io::ErrorKind::PermissionDenied));
        // Linux before 6.7 has no such mapping of a sealed file.
        let Ok(map) = MmapOptions::new().map_raw_read_only(file) else { continue };
        let (address, flags) =
            (map.as_mut_ptr().cast(), MprotectFlags::READ | MprotectFlags::WRITE);
        // SAFETY: a mapping of this test alone.
        let writable = unsafe { mprotect(address, map.len(), flags) };
        assert_eq!(writable, Err(Errno::ACCESS));
        // SAFETY: the same; the pages are to be removed from the file.
        let removed = unsafe { madvise(address, map.len(), Advice::LinuxRemove) };
        assert_eq!(removed, Err(Errno::ACCESS));
    }
    check(&sealed);
}

#[test]
fn the_seals_of_a_sealed_file_are_final() {
    let (sealed, files) = sealed();
    for file in &files {
        for seals in [SealFlags::empty(), SealFlags::WRITE, SealFlags::FUTURE_WRITE] {
            assert_eq!(fcntl_add_seals(file, seals), Err(Errno::PERM));
        }
    }
    check(&sealed);
}

#[test]
fn a_private_mapping_writes_to_no_other_one() {
    let (sealed, [file, _]) = sealed();
    // SAFETY: the file is sealed.
    let mut map = unsafe { MmapOptions::new().map_copy(&file) }.expect("a mapping");
    map.fill(0xff);
    let mut private = sealed.private("tensor").expect("there");
    private.as_slice_mut::<i64>().expect("exclusive").fill(9);
    check(&sealed);
}

/// Code without `unsafe` that writes to memory of its own process, whatever the rights of its pages.
#[test]
fn a_frozen_tensor_is_not_written_through_proc() {
    let (sealed, [file, _]) = sealed();
    let tensor = sealed.tensor("tensor").expect("there");
    let memory = File::options().write(true).open("/proc/self/mem").expect("procfs");
    // Before Linux 6.7, the mapping is private, and such a write would change the tensor.
    if MmapOptions::new().map_raw_read_only(&file).is_ok() {
        memory.write_at(&[0xff], tensor.data_ptr().addr() as u64).expect_err("refused");
    }
    let private = sealed.private("tensor").expect("there");
    memory.write_at(&[0xff], private.data_ptr().addr() as u64).expect("a copy of the page");
    check(&sealed);
}

/// The file of a filling of `size` bytes. No call returns the descriptor, but it can be found.
fn unsealed(size: i64) -> (Filling, OwnedFd) {
    let filling =
        Builder::new().tensor("x", dlbridge::DType::U8, &[size]).allocate().expect("memory");
    let file = fs::read_dir("/proc/self/fd").expect("procfs").find_map(|entry| {
        let path = entry.expect("a descriptor").path();
        let name = fs::read_link(&path).ok()?;
        let file = || open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok();
        let file = name.to_string_lossy().starts_with("/memfd:dlbridge").then(file)??;
        (fstat(&file).expect("a file").st_size / 1000 == size / 1000).then_some(file)
    });
    (filling, file.expect("the file"))
}

#[test]
fn pages_that_are_in_use_by_other_calls_prevent_sealing() {
    let (mut filling, file) = unsealed(2_345_678);
    let (reads, writes) = pipe().expect("a pipe");
    let map = MmapOptions::new().map_raw(&file).expect("not sealed yet");
    // SAFETY: a page of this mapping, which is not written.
    let page = unsafe { std::slice::from_raw_parts(map.as_ptr(), 4096) };
    // SAFETY: the same; the pipe refers to the page.
    let sent = unsafe { vmsplice(&writes, &[IoSliceRaw::from_slice(page)], SpliceFlags::empty()) };
    assert_eq!(sent, Ok(4096));
    drop(map);
    let error = filling.seal().map(drop).expect_err("a page in use").to_string();
    assert!(error.contains("I/O that still has pages"), "{error}");
    thread::scope(|scope| {
        scope.spawn(|| {
            // Longer than one call of the kernel waits.
            thread::sleep(Duration::from_millis(300));
            drop((reads, writes));
        });
        filling.seal().expect("no page is in use any more");
    });
}

#[test]
fn a_writable_mapping_made_before_prevents_sealing() {
    let size = 1_234_567;
    let (mut filling, file) = unsealed(size);
    let map = MmapOptions::new().map_raw(&file).expect("not sealed yet");
    for _ in 0..2 {
        let error = filling.seal().map(drop).expect_err("a writable mapping").to_string();
        assert!(error.contains("expected no writable mapping, found one"), "{error}");
    }
    drop(map);
    let sealed = filling.seal().expect("no mapping is left");
    assert_eq!(sealed.tensor("x").expect("there").len(), size as usize);
}

#[test]
fn a_file_that_is_filled_keeps_its_size_and_its_pages() {
    let size = 4_567_100;
    let (mut filling, file) = unsealed(size);
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(&file, 1 << 30), Err(Errno::PERM));
    let mut tensor = filling.tensor("x").expect("there");
    tensor.as_slice_mut::<u8>().expect("exclusive").fill(7);
    // From the first tensor on, no other mapping and no call writes to the file.
    assert_eq!(ftruncate(&file, 0), Err(Errno::PERM));
    assert_eq!(pwrite(&file, b"x", 4096), Err(Errno::PERM));
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(&file, hole, 0, 1 << 20), Err(Errno::PERM));
    assert!(MmapOptions::new().map_raw(&file).is_err());
    assert!(tensor.as_slice::<u8>().expect("exclusive").iter().all(|&byte| byte == 7));
    drop(tensor);
    let sealed = filling.seal().expect("no tensor is left");
    assert_eq!(sealed.tensor("x").expect("there").as_slice::<u8>(), Ok(&[7; 4_567_100][..]));
}
