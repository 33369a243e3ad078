//! Files on disk, and sharded ones: opened, their headers read and compared with their sizes.
//! Invariant: only regular files are opened, so that no call waits for a writer.

use std::collections::BTreeMap;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::{error, fmt};

use super::header::{self, Contents, Entry, SIZE};

/// How the name of the index of a sharded model ends.
const INDEX: &str = ".index.json";

/// The error of a file, with its name: the inner error of an [`io::Error`] of this module.
#[derive(Debug)]
pub struct FileError {
    /// The name of the file.
    pub path: PathBuf,
    /// What the system says; [`InvalidData`](ErrorKind::InvalidData) for what is in the file.
    pub error: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.path, self.error)
    }
}

impl error::Error for FileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.error)
    }
}

impl FileError {
    /// Puts the name of a file before its error.
    pub(crate) fn of(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
        move |error| io::Error::new(error.kind(), Self { path: path.into(), error })
    }
}

pub(super) fn invalid(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, reason)
}

/// Opens a file, or one shard of an index (`*.index.json`) after the other, and calls a function with each file, which is
/// positioned at its first tensor, and its tensors.
///
/// # Errors
///
/// A [`FileError`], also of the function.
pub(crate) fn open(
    path: &Path,
    mut each: impl FnMut(&File, &[Entry]) -> io::Result<()>,
) -> io::Result<Contents> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.ends_with(INDEX) {
        true => shards(path, each),
        false => one(path, &mut each),
    }
}

/// Opens a regular file, without waiting for a writer if it is a FIFO, and gets its size.
pub(super) fn regular(path: &Path) -> io::Result<(File, usize)> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    check_regular(metadata.file_type())?;
    let too_large =
        |_| invalid(format!("expected a file that fits memory, found {} bytes", metadata.len()));
    Ok((file, usize::try_from(metadata.len()).map_err(too_large)?))
}

/// Refuses everything but a regular file.
pub(super) fn check_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let found = if kind.is_dir() { "a directory" } else { "a pipe, a socket or a device" };
    Err(invalid(format!("expected a regular file, found {found}")))
}

fn one(
    path: &Path,
    each: &mut dyn FnMut(&File, &[Entry]) -> io::Result<()>,
) -> io::Result<Contents> {
    let mut read = || {
        let (mut file, size) = regular(path)?;
        let rest = size.checked_sub(SIZE).ok_or_else(|| invalid(header::too_short(size)))?;
        let mut length = [0; SIZE];
        file.read_exact(&mut length)?;
        let length = header::length(length, rest).map_err(invalid)?;
        let mut json = vec![0; length];
        file.read_exact(&mut json)?;
        let contents = header::contents(&json, rest - length).map_err(invalid)?;
        each(&file, &contents.entries)?;
        Ok(contents)
    };
    read().map_err(FileError::of(path))
}

fn shards(
    path: &Path,
    mut each: impl FnMut(&File, &[Entry]) -> io::Result<()>,
) -> io::Result<Contents> {
    let named = names(path).map_err(FileError::of(path))?;
    let wrong = |reason: String| FileError::of(path)(invalid(reason));
    // In the order of their names.
    let mut shards: BTreeMap<&str, usize> = named.values().map(|shard| (&**shard, 0)).collect();
    let (mut entries, mut metadata, mut size) = (Vec::new(), BTreeMap::new(), 0_usize);
    for (number, (shard, place)) in shards.iter_mut().enumerate() {
        let name = Path::new(shard);
        let is_plain = name.components().eq([Component::Normal(name.as_os_str())]);
        if !is_plain || shard.contains(['/', '\\']) {
            return Err(wrong(format!("expected a plain file name, found {shard:?}")));
        }
        let name = path.with_file_name(name);
        let mut contents = one(&name, &mut each)?;
        *place = number;
        contents.entries.iter_mut().for_each(|entry| entry.file = number);
        size = size.saturating_add(contents.size);
        entries.append(&mut contents.entries);
        // The first shard that has a key decides.
        contents.metadata.append(&mut metadata);
        metadata = contents.metadata;
    }
    let contents = Contents::new(entries, metadata, size).map_err(wrong)?;
    for (name, shard) in &named {
        let found = contents.find(name).map(|place| contents.entries[place].file);
        if found != Ok(shards[&**shard]) {
            return Err(wrong(format!("expected {name:?} in {shard:?}, found none there")));
        }
    }
    Ok(contents)
}

/// The shard of each tensor, as the index says it.
fn names(path: &Path) -> io::Result<BTreeMap<String, String>> {
    let (mut file, size) = regular(path)?;
    header::check_length("index", size).map_err(invalid)?;
    let mut json = vec![0; size];
    file.read_exact(&mut json)?;
    header::shards(&json).map_err(invalid)
}
