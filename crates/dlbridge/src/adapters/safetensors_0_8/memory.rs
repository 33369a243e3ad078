//! Maps files, and writes elements that other code may change meanwhile: only the kernel reads them, so that
//! pages that are gone are an error.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use crate::layout::Placement;
use crate::memory::owner::export_within;
use crate::memory::{Checked, Handle};
use crate::{Access, Error, Flags};

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
    pub(super) fn export(
        file: Arc<Self>,
        placement: &Placement<'_>,
        range: Range<usize>,
        flags: Flags,
    ) -> Result<Handle, Error> {
        let end = file.0.len();
        let size = range.end.min(end).saturating_sub(range.start);
        // SAFETY: within the mapping (R2), which lives as long as its owner (R10). The kernel fills its pages
        // from the file, and ends the process where the file has become shorter. The class is `Shared` (R4).
        unsafe {
            export_within(file, placement, flags, Access::Shared, |file| {
                (file.0.as_mut_ptr().wrapping_add(range.start.min(end)), size)
            })
        }
    }
}

/// Writes the bytes of contiguous host tensors, by as few calls as possible.
#[cfg(unix)]
pub(super) fn write(file: &File, tensors: &[Checked<'_>]) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let part = |tensor: &Checked<'_>| {
        tensor.check_host()?;
        tensor.check_contiguous()?;
        Ok(libc::iovec { iov_base: tensor.data().cast(), iov_len: tensor.nbytes() })
    };
    let mut parts = tensors.iter().map(part).collect::<Result<Vec<_>, Error>>()?;
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
