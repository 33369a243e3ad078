//! Writes files: to a temporary name, from the tensors' own memory, then renamed.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge::{Error, Tensor};
use safetensors::tensor::Dtype;

use super::file::{FileError, check_regular};
use super::{dtype_name, header};

/// Where tensors begin, if their sizes allow it: what JAX needs to share memory.
const ALIGN: usize = 64;

/// Writes tensors to a file of the format, in the place of one that exists, whose mode it gets.
///
/// The bytes come from the tensors' own memory; a tensor that is not contiguous is copied first. They go to a temporary
/// file in the same folder, which is then renamed. So readers see the old file or the new one, an error leaves the old
/// one, and tensors of the old file, mapped or not, may be among those that are written. A path that is a symbolic link
/// stays one: the file that it leads to is written. With `fsync`, the file is on the disk when this returns.
///
/// On Linux the temporary file gets a name when it is complete and is renamed at once, so that a process that is killed
/// while it writes leaves none. One that is killed between these two calls leaves `.dlbridge-*.tmp`; elsewhere, and on file
/// systems without files that have no name, one that is killed while it writes does as well.
///
/// Tensors of which each fills whole blocks of 64 bytes come first, then the others by what their sizes are a multiple
/// of, otherwise in the order given. So every tensor is aligned for its elements, without padding between them.
///
/// ```
/// # #[cfg(not(miri))]
/// # fn main() -> std::io::Result<()> {
/// use std::collections::BTreeMap;
///
/// use dlbridge::Tensor;
/// use dlbridge_sealed::safetensors_0_8::{Archive, save};
///
/// let path = std::env::temp_dir().join(format!("dlbridge-{}.safetensors", std::process::id()));
/// save(&path, [("x", &Tensor::from(vec![1.0_f32, 2.0]))], &BTreeMap::new(), false)?;
/// let archive = Archive::open(&path)?;
/// assert_eq!(archive.tensor("x")?.view::<f32>()?.to_vec(), [1.0, 2.0]);
/// std::fs::remove_file(path)
/// # }
/// # #[cfg(miri)]
/// # fn main() {}
/// ```
///
/// # Errors
///
/// A [`FileError`] in each: those of the system, and [`InvalidInput`](ErrorKind::InvalidInput), before anything is written, for a dtype that the
/// format lacks, memory of a device, a name that is used twice or reserved (`__metadata__`), a header above 100 MB,
/// and a path of anything but a regular file.
pub fn save<'t, N: Into<String>>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (N, &'t Tensor)>,
    metadata: &BTreeMap<String, String>,
    fsync: bool,
) -> io::Result<()> {
    let path = path.as_ref();
    let tensors = tensors.into_iter().map(|(name, tensor)| (name.into(), tensor)).collect();
    write(path, tensors, metadata, fsync).map_err(FileError::of(path))
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason)
}

/// Lays a file out: its header, and its tensors in order.
fn plan<'t>(
    tensors: Vec<(String, &'t Tensor)>,
    metadata: &BTreeMap<String, String>,
) -> io::Result<(Vec<u8>, Vec<&'t Tensor>, usize)> {
    let mut names = HashSet::new();
    let mut typed = Vec::with_capacity(tensors.len());
    for (name, tensor) in &tensors {
        if name == "__metadata__" || !names.insert(name) {
            let found = "expected a name that is neither reserved nor used twice, found";
            return Err(invalid(format!("{found} {name:?}")));
        }
        let dtype = writable(tensor).map_err(|reason| invalid(format!("{name:?}: {reason}")))?;
        typed.push((name, dtype, *tensor));
    }
    typed.sort_by_key(|(_, _, tensor)| {
        std::cmp::Reverse((tensor.nbytes() | ALIGN).trailing_zeros())
    });
    let mut end = 0_usize;
    let mut ranges = Vec::with_capacity(typed.len());
    for (_, _, tensor) in &typed {
        let start = end;
        end = end
            .checked_add(tensor.nbytes())
            .filter(|&end| end <= isize::MAX as usize / 2)
            .ok_or_else(|| invalid("expected a size that fits the address space".into()))?;
        ranges.push(start..end);
    }
    let entries = typed.iter().zip(ranges);
    let entries = entries.map(|((name, dtype, tensor), range): (_, Range<usize>)| {
        (name.as_str(), *dtype, tensor.shape(), range)
    });
    let json = header::write(metadata, entries);
    let start = (header::SIZE + json.len()).next_multiple_of(ALIGN);
    header::check_length("header", start - header::SIZE).map_err(invalid)?;
    let mut bytes = ((start - header::SIZE) as u64).to_le_bytes().to_vec();
    bytes.extend(json.bytes());
    // JSON may end in spaces.
    bytes.resize(start, b' ');
    Ok((bytes, typed.into_iter().map(|(_, _, tensor)| tensor).collect(), start + end))
}

/// The dtype of the format, for a tensor that can be written.
fn writable(tensor: &Tensor) -> Result<Dtype, String> {
    let (dtype, device) = (tensor.dtype(), tensor.device());
    let name = dtype_name(dtype).map_err(|error| error.to_string())?;
    if !device.is_host_accessible() {
        return Err(Error::NotHostAccessible { device }.to_string());
    }
    if header::size(dtype, tensor.shape())? != tensor.nbytes() {
        return Err(format!("expected packed {dtype} elements, found a byte for each"));
    }
    if dtype.itemsize().is_none() && !tensor.is_contiguous() {
        return Err(Error::SubByte { padded: false, dtype }.to_string());
    }
    Ok(name)
}

fn write(
    path: &Path,
    tensors: Vec<(String, &Tensor)>,
    metadata: &BTreeMap<String, String>,
    fsync: bool,
) -> io::Result<()> {
    let (header, tensors, size) = plan(tensors, metadata)?;
    let path = &follow(path);
    let old = match fs::metadata(path) {
        Ok(old) => {
            check_regular(old.file_type()).map_err(|error| invalid(error.to_string()))?;
            Some(old.permissions())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // Before the old file is replaced: a folder that may be written and not read cannot be opened.
    #[cfg(unix)]
    let synced = if fsync { Some(File::open(folder)?) } else { None };
    let temporary = Temporary::create(folder)?;
    // First, so that others never read what the old file kept from them.
    if let Some(mode) = old {
        temporary.file.set_permissions(mode)?;
    }
    temporary.fill(&header, &tensors, size)?;
    if fsync {
        temporary.file.sync_all()?;
    }
    temporary.rename(path)?;
    #[cfg(unix)]
    if let Some(folder) = synced {
        folder.sync_all()?;
    }
    Ok(())
}

/// The path that symbolic links lead to, whether there is a file or not.
fn follow(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // As many as the kernel follows.
    for _ in 0..40 {
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    path
}

/// A file that is removed unless it is renamed.
struct Temporary {
    /// Empty while it has no name.
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn create(folder: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Ok(file) = super::memory::unnamed(folder) {
            return Ok(Self { path: PathBuf::new(), file });
        }
        let create = |path: &Path| File::options().write(true).create_new(true).open(path);
        let (path, file) = with_name(folder, create)?;
        Ok(Self { path, file })
    }

    fn fill(&self, header: &[u8], tensors: &[&Tensor], size: usize) -> io::Result<()> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        super::memory::allocate(&self.file, size)?;
        (&self.file).write_all(header)?;
        let is_direct = |tensor: &Tensor| cfg!(unix) && tensor.is_contiguous();
        for tensors in tensors.chunk_by(|a, b| is_direct(a) && is_direct(b)) {
            #[cfg(unix)]
            if is_direct(tensors[0]) {
                super::memory::write(&self.file, tensors)?;
                continue;
            }
            for tensor in tensors {
                tensor.write_to(&self.file)?;
            }
        }
        // Blocks that were allocated have the full length already.
        self.file.set_len(size as u64)
    }

    fn rename(mut self, path: &Path) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        if self.path.as_os_str().is_empty() {
            let folder = path.parent().unwrap_or(Path::new(""));
            self.path = with_name(folder, |path| super::memory::link(&self.file, path))?.0;
        }
        fs::rename(&self.path, path)?;
        self.path = PathBuf::new();
        Ok(())
    }
}

/// Makes something by a name that no file of a folder has.
fn with_name<T>(
    folder: &Path,
    mut make: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".dlbridge-{}-{number}.tmp", std::process::id()));
        match make(&path) {
            Ok(made) => return Ok((path, made)),
            // Of a process that had this number and was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}
