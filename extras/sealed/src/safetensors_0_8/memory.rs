//! Maps files, and writes elements that other code may change meanwhile: only the kernel reads them, so that
//! pages that are gone are an error.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::sync::Arc;

use dlbridge::{Device, Error, Flags, Tensor};
use memmap2::{MmapOptions, MmapRaw};

use super::header::Entry;
use super::{FORMAT, refused};

/// A file on disk that [`Archive::open`](super::Archive::open) mapped: private pages, which are copied when they are
/// written.
#[derive(Debug)]
pub struct MappedFile(MmapRaw);

impl MappedFile {
    /// Maps the whole file. No memory is reserved for pages that are never written.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        // SAFETY: no reference to the pages is made: tensors over them are `Shared`, because any process can
        // write to the file (R4).
        let map = unsafe { MmapOptions::new().no_reserve_swap().map_copy(file) };
        Ok(Self(map?.into()))
    }

    /// A tensor over bytes of the file.
    pub(super) fn export(file: Arc<Self>, entry: &Entry, flags: Flags) -> Result<Tensor, Error> {
        let memory = (file.0.as_mut_ptr(), file.0.len());
        // SAFETY: the mapping, which lives as long as its owner (R10). The kernel fills its pages from the file, and ends
        // the process where the file has become shorter. The entry is of the header that an archive parsed.
        unsafe { export(file, memory, entry, flags) }
    }
}

/// A tensor over bytes that an owner borrows, read-only, and that another program may write.
pub(super) fn shared<O: AsRef<[u8]> + Send + Sync + 'static>(
    owner: Arc<O>,
    entry: &Entry,
    _: Flags,
) -> Result<Tensor, Error> {
    let bytes = O::as_ref(&owner);
    let memory = (bytes.as_ptr().cast_mut(), bytes.len());
    // SAFETY: a slice that the owner borrows, who is at its final address and shared: each slice of it stays (R10). The entry
    // is of the header that an archive parsed.
    unsafe { export(owner, memory, entry, Flags::READ_ONLY) }
}

/// A tensor of an entry within the memory of its file, of class `Shared`.
///
/// # Safety
///
/// The memory can be read, and written unless `flags` has `READ_ONLY`, while the owner lives. The entry is of a parsed header:
/// its range has as many bytes as its elements need (`header.rs`).
unsafe fn export<O: Send + 'static>(
    owner: O,
    (start, size): (*mut u8, usize),
    entry: &Entry,
    flags: Flags,
) -> Result<Tensor, Error> {
    if entry.range.end > size {
        let reason = format!("expected a file of {} bytes or more, found {size}", entry.range.end);
        return Err(refused(FORMAT, reason));
    }
    let builder = Tensor::builder(owner).dtype(entry.dtype).shape(&entry.shape);
    let data = start.wrapping_add(entry.range.start).cast();
    // SAFETY: a range within the memory (R2), as large as the elements. The class is `Shared` (R4).
    unsafe { builder.build_raw(data, Device::CPU, flags) }
}

/// Writes the bytes of contiguous host tensors, by as few calls as possible.
#[cfg(unix)]
pub(super) fn write(file: &File, tensors: &[&Tensor]) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let part = |tensor: &&Tensor| {
        let is_direct = tensor.device().is_host_accessible() && tensor.is_contiguous();
        assert!(is_direct, "a contiguous tensor in host memory");
        libc::iovec { iov_base: tensor.data_ptr(), iov_len: tensor.nbytes() }
    };
    let mut parts = tensors.iter().map(part).collect::<Vec<_>>();
    // The first part that is not written, and how much of it is.
    let (mut next, mut done) = (0, 0);
    loop {
        while parts.get(next).is_some_and(|part| part.iov_len <= done) {
            done -= parts[next].iov_len;
            next += 1;
        }
        let Some(first) = parts.get_mut(next) else { return Ok(()) };
        first.iov_base = first.iov_base.wrapping_byte_add(done);
        first.iov_len -= done;
        let left = &parts[next..];
        let count = left.len().min(MOST) as libc::c_int;
        // SAFETY: the kernel reads so many bytes of each part (R1, R2), or returns an error for pages that it
        // cannot read. No reference to them is made, because other code may write them (R4).
        let written = unsafe { libc::writev(file.as_raw_fd(), left.as_ptr(), count) };
        done = match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => written,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => 0,
                error => return Err(error),
            },
        };
    }
}

/// The most parts that a call may have.
#[cfg(unix)]
const MOST: usize = 1024;

/// Allocates the blocks of a file that is to be written, so that a full disk is found before.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn allocate(file: &File, size: usize) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let size = libc::off_t::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
    loop {
        // SAFETY: a call of the system, with a descriptor that is borrowed (F10).
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            // File systems that cannot allocate, and kernels that do not know the call.
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) => return Ok(()),
            _ => return Err(error),
        }
    }
}

/// A file of a folder that has no name yet. Not all file systems have such files.
#[cfg(target_os = "linux")]
pub(super) fn unnamed(folder: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;

    // Where processes have no files, none can be given a name.
    std::fs::metadata("/proc/self/fd")?;
    File::options().write(true).custom_flags(libc::O_TMPFILE).open(folder)
}

/// Gives a file without a name one that no file has.
#[cfg(target_os = "linux")]
pub(super) fn link(file: &File, path: &std::path::Path) -> io::Result<()> {
    use std::ffi::CString;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    let file = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (here, follow) = (libc::AT_FDCWD, libc::AT_SYMLINK_FOLLOW);
    // SAFETY: a call of the system, with two texts that end in a zero (F10).
    match unsafe { libc::linkat(here, file.as_ptr(), here, path.as_ptr(), follow) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
