//! Whether a descriptor of any origin is of a memory file that keeps its size and its pages.
//! Invariant: a check touches no page, and allocates none.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use dlbridge::Error;
use rustix::fs::{self, FileType, SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::{refused, system};

/// The file system of ordinary memory files. Those of huge pages are in another one, whose pages can
/// be missing when they are read.
const TMPFS: u64 = 0x0102_1994;
/// The largest file whose pages are looked at one by one, because counting them is not quicker.
const SMALL: usize = 512 << 10;
/// The longest time for a count of pages: a maker can hide as many missing pages as the kernel allocates in it.
const WINDOW: Duration = Duration::from_micros(10);
/// Counts of pages, because the first one takes longer in a new file.
const ATTEMPTS: usize = 3;

/// Whether a descriptor is of a memory file of ordinary pages that has these seals at least.
pub(crate) fn check_seals(file: impl AsFd, wanted: SealFlags) -> Result<(), Error> {
    let seals = fs::fcntl_get_seals(&file).map_err(|error| not_a_memfd(&file, error))?;
    if !seals.contains(wanted) {
        let missing = wanted.difference(seals);
        let missing: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
        let missing = missing.join(", ");
        return Err(refused(format!(
            "expected a memory file with all seals, found one without the seals {missing}; \
             seal it where it was made"
        )));
    }
    let system_of = fs::fstatfs(&file).map_err(|error| system("fstatfs", error))?.f_type;
    if u64::try_from(system_of) != Ok(TMPFS) {
        return Err(refused("expected a memory file of ordinary pages, found huge pages".into()));
    }
    Ok(())
}

/// The size of a file that has all its pages, and whose size is sealed: reading a missing page would allocate it.
pub(crate) fn check_pages(file: &OwnedFd) -> Result<(usize, fs::Stat), Error> {
    let found = stat(file)?;
    let size = usize::try_from(found.st_size).unwrap_or_default();
    if size > SMALL && (0..ATTEMPTS).any(|_| counts_pages(file, size)) {
        return Ok((size, found));
    }
    // The position belongs to all that have the descriptor.
    let position = fs::tell(file).map_err(|error| system("lseek", error))?;
    let written = fs::seek(file, SeekFrom::Hole(0)).unwrap_or_default();
    fs::seek(file, SeekFrom::Start(position)).map_err(|error| system("lseek", error))?;
    if size == 0 || written != size as u64 {
        return Err(refused(format!(
            "expected a memory file with all its pages, found a hole at byte {written} of {size}; \
             write each page before sealing"
        )));
    }
    Ok((size, found))
}

/// Whether the kernel counts as many pages as the file needs, which takes the same time for every size. First, `ftruncate`
/// cuts off pages beyond the end, and waits for a running `fallocate`, whose pages the kernel takes back if it is
/// interrupted. Only a later `fallocate` can still hide missing pages: those that it allocates in the `WINDOW`.
fn counts_pages(file: &OwnedFd, size: usize) -> bool {
    let start = Instant::now();
    // Fails for a read-only descriptor.
    let found = fs::ftruncate(file, size as u64).ok().and_then(|()| stat(file).ok());
    let is_short = start.elapsed() < WINDOW;
    let blocks = found.and_then(|found| usize::try_from(found.st_blocks).ok());
    is_short && blocks.is_some_and(|blocks| blocks >= size.div_ceil(512))
}

pub(crate) fn stat(file: &OwnedFd) -> Result<fs::Stat, Error> {
    fs::fstat(file).map_err(|error| system("fstat", error))
}

/// The error for a descriptor that has no seals: it names the kind of file.
fn not_a_memfd(file: impl AsFd, error: Errno) -> Error {
    let found = match fs::fstat(file).map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::RegularFile) => "a file on disk".to_owned(),
        Ok(FileType::Directory) => "a directory".to_owned(),
        Ok(FileType::Fifo) => "a pipe".to_owned(),
        Ok(FileType::Socket) => "a socket".to_owned(),
        Ok(FileType::CharacterDevice | FileType::BlockDevice) => "a device".to_owned(),
        _ => error.to_string(),
    };
    refused(format!("expected a sealed memory file (memfd), found {found}"))
}
