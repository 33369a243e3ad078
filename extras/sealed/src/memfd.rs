//! Memory files (memfd): created, written or filled through one writable mapping, sealed, and mapped
//! again.
//! Invariant: R4: memory is `Frozen` only if the kernel says that its file is sealed (F10), and
//! `Exclusive` only in a region that is split off once, or in a private mapping of one tensor.
#![allow(unsafe_code)]

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::fs::{self, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::{Errno, pwrite, retry_on_intr};
use rustix::process::geteuid;

use dlbridge::Error;

use crate::check::{check_pages, check_seals, stat};
use crate::{refused, system};

/// A mapping that is only read.
pub(crate) use memmap2::Mmap as Map;

/// The seals of a file whose bytes and size no process can ever change.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);
/// A call that takes longer was not refused for a mapping.
const MAPPED: Duration = Duration::from_millis(50);
/// Advice for a process that is at its limit of mappings, by default 65,530.
const MAPPINGS: &str = "if the process is at its limit of mappings (vm.max_map_count), drop tensors, \
                        or take all tensors of a file by private_tensors, which maps it once";
/// What pages that were never written are filled with.
const ZEROS: [u8; 4096] = [0; 4096];

/// A file that is not sealed yet. No caller gets its descriptor, so that only this process has it.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: OwnedFd,
    size: usize,
}

impl NewFile {
    /// Creates a file without pages, if the machine has the memory for them.
    pub(crate) fn create(size: usize) -> Result<Self, Error> {
        // The kernel's rule for promising memory refuses a size that the machine does not have. Memory
        // files are exempt from it: allocating their pages would end other processes first.
        let promised = MmapOptions::new().len(size).map_anon();
        drop(promised.map_err(|_| Error::OutOfMemory { size })?);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match fs::memfd_create("dlbridge", flags | MemfdFlags::NOEXEC_SEAL) {
            // Linux before 6.3 does not know the flag.
            Err(Errno::INVAL) => fs::memfd_create("dlbridge", flags),
            made => made,
        };
        let file = file.map_err(|error| system("memfd_create", error))?;
        let new = Self { file, size };
        let resized = retry_on_intr(|| fs::ftruncate(&new.file, size as u64));
        resized.map_err(|error| new.no_memory("ftruncate", error))?;
        // From here on, a mapping cannot be cut off: not by code that finds the descriptor either.
        let fixed = fs::fcntl_add_seals(&new.file, SealFlags::SHRINK | SealFlags::GROW);
        fixed.map_err(|error| system("fcntl(F_ADD_SEALS)", error))?;
        Ok(new)
    }

    /// Writes bytes, in pages that are allocated for them and not cleared before.
    pub(crate) fn write(&self, mut offset: usize, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let written = retry_on_intr(|| pwrite(&self.file, bytes, offset as u64));
            let written = written.map_err(|error| self.no_memory("pwrite", error))?;
            offset += written;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Writes zeros to the pages that were never written. Pages that are only allocated would count
    /// as missing: the kernel takes them back if the allocation is interrupted.
    fn complete(&self) -> Result<(), Error> {
        let end = self.size as u64;
        let seek = |to| fs::seek(&self.file, to).map_err(|error| system("lseek", error));
        let mut hole = seek(SeekFrom::Hole(0))?;
        while hole < end {
            let next = match fs::seek(&self.file, SeekFrom::Data(hole)) {
                // No data up to the end.
                Err(Errno::NXIO) => end,
                found => found.map_err(|error| system("lseek", error))?,
            };
            for start in (hole..next).step_by(ZEROS.len()) {
                let rest = usize::try_from(next - start).unwrap_or(usize::MAX);
                self.write(start as usize, &ZEROS[..ZEROS.len().min(rest)])?;
            }
            hole = if next < end { seek(SeekFrom::Hole(next))? } else { end };
        }
        Ok(())
    }

    fn no_memory(&self, call: &'static str, error: Errno) -> Error {
        match error {
            Errno::NOSPC | Errno::NOMEM | Errno::FBIG => Error::OutOfMemory { size: self.size },
            error => system(call, error),
        }
    }

    /// Maps the whole file, to be filled, and allocates all its pages: the first access to a page for
    /// which there is no memory would end the process.
    pub(crate) fn map(&self) -> Result<Unsplit, Error> {
        let map = MmapOptions::new().len(self.size).map_raw(&self.file);
        let map = map.map_err(|error| system("mmap", error))?;
        // One call, in place of a page fault for each page.
        if let Err(error) = map.advise(Advice::PopulateWrite) {
            match error.kind() {
                // Linux before 5.14.
                ErrorKind::InvalidInput => self.complete()?,
                _ => return Err(Error::OutOfMemory { size: self.size }),
            }
        }
        // This mapping stays the only way to write. Linux before 5.1 does not know the seal; a slot of a channel is checked
        // for it, and a file that is sealed gets a stronger one.
        let _ = fs::fcntl_add_seals(&self.file, SealFlags::FUTURE_WRITE);
        Ok(Unsplit { map: Arc::new(map), next: 0 })
    }

    /// Adds the seals. The kernel refuses at once if there is a writable mapping. For pages in use, maybe by the kernel
    /// itself, it waits 150 ms; this function then tries again some times.
    fn add_seals(&self) -> Result<(), Error> {
        let mut left = 4;
        loop {
            let start = Instant::now();
            match fs::fcntl_add_seals(&self.file, SEALS) {
                Err(Errno::BUSY) if left > 0 && start.elapsed() > MAPPED => left -= 1,
                Err(Errno::BUSY) => {
                    return Err(refused(
                        "expected no writable mapping, found one in another process, or I/O that still has \
                         pages; end the child that was forked while the tensors were filled, then seal \
                         again"
                            .into(),
                    ));
                }
                sealed => return sealed.map_err(|error| system("fcntl(F_ADD_SEALS)", error)),
            }
        }
    }

    /// Seals the file, unless a writable mapping of it is left.
    pub(crate) fn seal(self) -> Result<(SealedFile, Map), (Self, Error)> {
        let sealed = self.complete().and_then(|()| self.add_seals());
        match sealed.and_then(|()| SealedFile::map(&self.file)) {
            Ok((size, identity, map)) => Ok((SealedFile { file: self.file, size, identity }, map)),
            Err(error) => Err((self, error)),
        }
    }
}

/// The rest of a writable mapping, from `next` on, which no [`Region`] has.
#[derive(Debug)]
pub(crate) struct Unsplit {
    map: Arc<MmapRaw>,
    next: usize,
}

impl Unsplit {
    /// Splits the bytes of a range off. Ranges must ascend, so that a byte is in one region at most.
    pub(crate) fn split(&mut self, range: &Range<usize>) -> Result<Region, Error> {
        let Range { start, end } = *range;
        if start < self.next || end < start || end > self.map.len() {
            return Err(refused(format!("expected rising ranges, found bytes {start}..{end}")));
        }
        self.next = end;
        Ok(Region { map: Arc::clone(&self.map), start, len: end - start })
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> usize {
        Arc::strong_count(&self.map) - 1
    }

    /// The whole mapping, to be split again; `None` while a region is alive.
    pub(crate) fn restart(&mut self) -> Option<&mut [u8]> {
        let map = Arc::get_mut(&mut self.map)?;
        self.next = 0;
        // SAFETY: the whole mapping (R2), which no region has and none gets during the borrow.
        Some(unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr(), map.len()) })
    }
}

/// Bytes of a writable mapping that no other region has.
#[derive(Debug)]
pub(crate) struct Region {
    map: Arc<MmapRaw>,
    start: usize,
    len: usize,
}

impl AsMut<[u8]> for Region {
    fn as_mut(&mut self) -> &mut [u8] {
        let data = self.map.as_mut_ptr().wrapping_add(self.start);
        // SAFETY: inside the mapping, which lives as long as `self` (R2) and is in no other region
        // (`split`). Its file has all its pages and is no shorter before the mapping is gone (R7),
        // and is this process's alone, or sealed and mapped privately (R4, F10).
        unsafe { std::slice::from_raw_parts_mut(data, self.len) }
    }
}

/// A file that was found sealed: neither its bytes nor its size ever change (F10).
#[derive(Debug)]
pub(crate) struct SealedFile {
    file: OwnedFd,
    size: usize,
    /// The device and the number of the file, because code in another language can close the descriptor by its
    /// number, which another file then gets.
    identity: (u64, u64),
}

impl SealedFile {
    /// Asks the kernel whether a file is sealed, then maps the whole file, to be read.
    pub(crate) fn check(file: OwnedFd) -> Result<(Self, Map), Error> {
        check_seals(&file, SEALS)?;
        let (size, identity, map) = Self::map(&file)?;
        Ok((Self { file, size, identity }, map))
    }

    /// Maps a file that is sealed.
    fn map(file: &OwnedFd) -> Result<(usize, (u64, u64), Map), Error> {
        let (size, found) = check_pages(file)?;
        let mut options = MmapOptions::new();
        let options = options.len(size);
        // A debugger cannot write to a shared mapping that is read-only, but to a private one. Before
        // Linux 6.7, a sealed file has private ones only, which share the file's pages as well.
        // SAFETY: no process can change the bytes of this file or make it shorter (F10).
        let map = unsafe { options.map(file) }.or_else(|_| {
            // SAFETY: the same (F10).
            unsafe { options.map_copy_read_only(file) }
        });
        let map = map.map_err(|error| system("mmap", error))?;
        // A core dump would have the pages of a shared mapping. Where this fails, it has.
        let _ = map.advise(Advice::DontDump);
        Ok((size, identity(&found), map))
    }

    /// The descriptor, if it is still of this file.
    fn file(&self) -> Result<&OwnedFd, Error> {
        if identity(&stat(&self.file)?) == self.identity {
            return Ok(&self.file);
        }
        Err(refused(format!(
            "expected the sealed file as descriptor {}, found another file: the descriptor was closed; \
             close a duplicate of it",
            self.file.as_raw_fd()
        )))
    }

    /// Maps a part of the file, copy-on-write.
    pub(crate) fn map_private(&self, range: &Range<usize>) -> Result<MmapMut, Error> {
        let mut options = MmapOptions::new();
        let options = options.offset(range.start as u64).len(range.len());
        // SAFETY: as above (F10); writes stay in this mapping (R4).
        let map = unsafe { options.map_copy(self.file()?) };
        map.map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => {
                Error::Refused { by: "mmap", reason: format!("{error}; {MAPPINGS}") }
            }
            _ => system("mmap", error),
        })
    }

    /// Maps the whole file, copy-on-write, to be split into regions.
    pub(crate) fn map_private_whole(&self) -> Result<Unsplit, Error> {
        let map = self.map_private(&(0..self.size))?;
        Ok(Unsplit { map: Arc::new(map.into()), next: 0 })
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        let file = self.file()?.try_clone().map_err(|error| system("dup", error))?;
        Ok(Self { file, ..*self })
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.file
    }
}

/// A file that is mapped for writing, to be sent.
impl AsFd for NewFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[allow(clippy::unnecessary_cast, reason = "of other types on other machines")]
fn identity(found: &fs::Stat) -> (u64, u64) {
    (found.st_dev as u64, found.st_ino as u64)
}

/// Whether the process at the other end of a socket is of the user of this one, as the kernel says.
pub(crate) fn is_of_this_user(socket: impl AsFd) -> Result<bool, Error> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let (option, out) = (libc::SO_PEERCRED, (&raw mut peer).cast());
    // Not by rustix, whose process number cannot be that of another namespace, 0.
    // SAFETY: the call writes `len` bytes at most, three numbers of any value (F10).
    let done = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, option, out, &raw mut len)
    };
    if done != 0 {
        return Err(system("getsockopt(SO_PEERCRED)", io::Error::last_os_error()));
    }
    Ok(peer.uid == geteuid().as_raw())
}
