//! `safetensors` 0.8: the tensors of a file without a copy, and files of tensors.
//!
//! [`Archive`] returns the tensors of a file, read-only, in the memory of the file, which each tensor
//! keeps alive. [`save()`] writes a file. [`view`] makes a `TensorView` of a contiguous tensor, for the functions of
//! `safetensors`. On every system.

pub(crate) mod file;
pub(crate) mod header;
mod memory;
mod save;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dlbridge::{DType, DescriptorError, Error, Flags, Tensor, TensorSlice};
use safetensors::tensor::{Dtype, TensorView};

pub use self::file::FileError;
pub use self::memory::MappedFile;
pub use self::save::save;

use self::header::{Contents, Entry};

/// The names of types in a file, and their dtypes. The format's `F8_E4M3` is the finite one.
const DTYPES: [(Dtype, DType); 22] = [
    (Dtype::BOOL, DType::BOOL),
    (Dtype::F4, DType::FLOAT4_E2M1FN),
    (Dtype::F6_E2M3, DType::FLOAT6_E2M3FN),
    (Dtype::F6_E3M2, DType::FLOAT6_E3M2FN),
    (Dtype::U8, DType::U8),
    (Dtype::I8, DType::I8),
    (Dtype::F8_E5M2, DType::FLOAT8_E5M2),
    (Dtype::F8_E4M3, DType::FLOAT8_E4M3FN),
    (Dtype::F8_E8M0, DType::FLOAT8_E8M0FNU),
    (Dtype::F8_E4M3FNUZ, DType::FLOAT8_E4M3FNUZ),
    (Dtype::F8_E5M2FNUZ, DType::FLOAT8_E5M2FNUZ),
    (Dtype::I16, DType::I16),
    (Dtype::U16, DType::U16),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I32, DType::I32),
    (Dtype::U32, DType::U32),
    (Dtype::F32, DType::F32),
    (Dtype::C64, DType::COMPLEX64),
    (Dtype::F64, DType::F64),
    (Dtype::I64, DType::I64),
    (Dtype::U64, DType::U64),
];

/// A safetensors file, and the tensors in it.
///
/// The owner of the memory is a mapped file, or any `AsRef<[u8]>`: a `Vec<u8>`, an `Arc<[u8]>`, `Bytes`. Each tensor
/// shares it and keeps it alive.
///
/// | the file is | make it by | class of its tensors |
/// | --- | --- | --- |
/// | on disk, to be mapped | [`Archive::open`], also for sharded models | [`Shared`](dlbridge::Access::Shared) |
/// | on disk, to be read | [`Archive::read`], into new memory | [`Frozen`](dlbridge::Access::Frozen) |
/// | in memory | [`Archive::new`] | [`Frozen`](dlbridge::Access::Frozen) |
/// | mapped by the caller | [`Archive::mapped`] | [`Shared`](dlbridge::Access::Shared) |
///
/// A tensor may have a misaligned address: a [`View`](dlbridge::View) reads it, a slice of it is an error
/// ([`Error::Misaligned`]).
///
/// ```
/// use dlbridge::Tensor;
/// use dlbridge_sealed::safetensors_0_8::{Archive, view};
///
/// let weights = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
/// let file = safetensors::serialize([("weights", view(&weights)?)], None)?;
///
/// let archive = Archive::new(file)?;
/// let tensor = archive.tensor("weights")?;
/// drop(archive);
/// assert_eq!(tensor.as_slice::<f32>()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Archive<O> {
    owners: Vec<Arc<O>>,
    contents: Contents,
    export: Export<O>,
}

/// Makes a tensor of an entry over the memory of its file.
type Export<O> = fn(Arc<O>, &Entry, Flags) -> Result<Tensor, Error>;

impl<O> fmt::Debug for Archive<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Archive");
        fields.field("tensors", &self.contents.entries.len());
        fields.field("metadata", &self.contents.metadata).finish_non_exhaustive()
    }
}

impl Archive<MappedFile> {
    /// Maps a file, or the files of a sharded model by their index (`*.index.json`). Only headers are read; the
    /// elements are read from the disk where they are first touched.
    ///
    /// Any process can write to a file, and a process that makes it shorter ends those that touch the pages that are gone
    /// (`SIGBUS`). So its tensors are [`Shared`](dlbridge::Access::Shared). A file that is replaced (renamed over, removed)
    /// keeps its values. [`seal_file`](crate::seal_file) makes a copy that nobody can change.
    ///
    /// ```no_run
    /// use dlbridge_sealed::safetensors_0_8::Archive;
    ///
    /// let archive = Archive::open("model.safetensors")?;
    /// for name in archive.names() {
    ///     println!("{name}: {:?}", archive.tensor(name)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// A [`FileError`] in each: those of the system, and [`InvalidData`](io::ErrorKind::InvalidData) for anything but a regular
    /// file of the format: a header or an index above 100 MB, sizes that do not fit, a name twice. In an index: a shard or a tensor that
    /// is missing, and a shard in another folder.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut owners = Vec::new();
        let contents = file::open(path.as_ref(), |file, _| {
            owners.push(Arc::new(MappedFile::new(file)?));
            Ok(())
        })?;
        Ok(Self { owners, contents, export: MappedFile::export })
    }

    /// All tensors with their names, in the order of [`names`](Self::names), writable: the first write to a page copies
    /// it, so that the file keeps its values.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of this archive is alive, because both would have the same pages, and those
    /// of [`tensor`](Self::tensor).
    pub fn into_private(mut self) -> Result<Vec<(String, Tensor)>, Error> {
        if self.owners.iter_mut().any(|owner| Arc::get_mut(owner).is_none()) {
            let reason = "expected no tensor of the file, found one that is alive; drop it first";
            return Err(refused(FORMAT, reason.into()));
        }
        // No two of them overlap.
        let tensor = |name: &str| Ok((name.to_owned(), self.one(name, Flags::NONE)?));
        self.names().map(tensor).collect()
    }
}

impl Archive<TensorSlice<u8>> {
    /// Reads a file into new memory.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for what the system says and for anything but a regular file of the format, or
    /// [`OutOfMemory`](Error::OutOfMemory).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let refused = |error: io::Error| refused("file", error.to_string());
        let (mut file, size) = file::regular(path.as_ref()).map_err(refused)?;
        let size =
            i64::try_from(size).map_err(|_| DescriptorError::SizeOverflow { what: "byte size" })?;
        let mut bytes = Tensor::zeros(DType::U8, [size])?;
        file.read_exact(bytes.as_bytes_mut()?).map_err(refused)?;
        Self::new(bytes.into_bytes()?)
    }
}

impl<O: AsRef<[u8]> + Send + Sync + 'static> Archive<O> {
    /// Takes a file that is in memory. No code may write the bytes of a `&[u8]`; a mapped file cannot
    /// guarantee that, so use [`mapped`](Self::mapped) for one.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for anything but a file of the format.
    pub fn new(owner: O) -> Result<Self, Error> {
        Self::parse(owner, |owner, entry, _| {
            let owner = Part { owner, range: entry.range.clone() };
            Tensor::builder(owner).dtype(entry.dtype).shape(&entry.shape).build_read_only::<u8>()
        })
    }

    /// Takes a file that the caller mapped. Another process may write to it at any time, so that
    /// its tensors are read by value only.
    ///
    /// ```no_run
    /// use dlbridge_sealed::safetensors_0_8::Archive;
    /// use memmap2::Mmap;
    ///
    /// let file = std::fs::File::open("model.safetensors")?;
    /// // SAFETY: no process truncates the file while it is mapped.
    /// let archive = Archive::mapped(unsafe { Mmap::map(&file) }?)?;
    /// for name in archive.names() {
    ///     println!("{name}: {:?}", archive.tensor(name)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for anything but a file of the format.
    pub fn mapped(owner: O) -> Result<Self, Error> {
        Self::parse(owner, memory::shared)
    }

    fn parse(owner: O, export: Export<O>) -> Result<Self, Error> {
        let contents = header::parse(owner.as_ref()).map_err(|reason| refused(FORMAT, reason))?;
        Ok(Self { owners: vec![Arc::new(owner)], contents, export })
    }
}

/// Some bytes of an owner; none if it returns fewer bytes than before, which rejects the shape.
pub(crate) struct Part<O> {
    pub(crate) owner: Arc<O>,
    pub(crate) range: Range<usize>,
}

impl<O: AsRef<[u8]>> AsRef<[u8]> for Part<O> {
    fn as_ref(&self) -> &[u8] {
        O::as_ref(&self.owner).get(self.range.clone()).unwrap_or_default()
    }
}

impl<O> Archive<O> {
    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.names()
    }

    /// The metadata of the file. Where shards have the same key, the first one's text.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.contents.metadata
    }

    /// The size of the file in bytes, or of all shards.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.contents.size
    }

    /// One tensor, read-only, in the memory of the file.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) for numbers of several bytes on a machine that
    /// stores them big end first.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        self.one(name, Flags::READ_ONLY)
    }

    fn one(&self, name: &str, flags: Flags) -> Result<Tensor, Error> {
        let entry = &self.contents.entries[self.contents.find(name)?];
        little_endian(entry.dtype)?;
        (self.export)(Arc::clone(&self.owners[entry.file]), entry, flags)
    }
}

/// The name of a type of elements in a file.
pub(crate) fn dtype_name(dtype: DType) -> Result<Dtype, Error> {
    little_endian(dtype)?;
    let found = DTYPES.iter().find(|(_, ours)| *ours == dtype);
    let &(theirs, _) = found.ok_or_else(|| refused(FORMAT, format!("no type for {dtype}")))?;
    Ok(theirs)
}

/// The format stores numbers in little-endian order.
pub(crate) fn little_endian(dtype: DType) -> Result<DType, Error> {
    if cfg!(target_endian = "big") && dtype.bits > 8 {
        let found =
            format!("expected little-endian elements, found {dtype} of a big-endian machine");
        return Err(refused(FORMAT, found));
    }
    Ok(dtype)
}

/// The name of this format in errors.
const FORMAT: &str = "safetensors";

fn refused(by: &'static str, reason: String) -> Error {
    Error::Refused { by, reason }
}

/// Borrows a tensor for the functions of `safetensors`.
///
/// # Errors
///
/// [`Refused`](Error::Refused) for a type that the format lacks, and those of [`as_bytes`](Tensor::as_bytes): copy a tensor
/// that is not contiguous, or that other code may write, with `to_contiguous` first.
pub fn view(tensor: &Tensor) -> Result<TensorView<'_>, Error> {
    let dtype = dtype_name(tensor.dtype())?;
    let shape = tensor.shape().iter().map(|&extent| extent as usize).collect();
    TensorView::new(dtype, shape, tensor.as_bytes()?)
        .map_err(|error| refused(FORMAT, error.to_string()))
}
