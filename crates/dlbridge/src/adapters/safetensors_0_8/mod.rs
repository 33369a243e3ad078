//! `safetensors` 0.8: the tensors of a file without a copy, and files of tensors.
//! Feature `safetensors-0_8`.
//!
//! [`Archive`] returns the tensors of a file, read-only, in the memory of the file, which each tensor
//! keeps alive. [`save()`] writes a file. A contiguous tensor becomes a `TensorView`, by [`view_as`](Tensor::view_as), for
//! the crate's own functions.

#[doc(hidden)]
pub mod file;
#[doc(hidden)]
pub mod header;
mod memory;
mod save;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, SafeTensorError, TensorView};

pub use self::memory::MappedFile;
pub use self::save::save;

use self::header::Contents;
use crate::layout::Placement;
use crate::layout::contiguous_strides;
use crate::memory::buffer::Buffer;
use crate::memory::owner::{OtherWriters, export_slice};
use crate::memory::{Checked, Handle};
use crate::{DType, DescriptorError, Error, Flags, Tensor, TensorMut, TensorRef, TensorSlice};

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
/// | on disk, to be mapped | [`Archive::open`], also for sharded models | [`Shared`](crate::Access::Shared) |
/// | on disk, to be read | [`Archive::read`], into new memory | [`Frozen`](crate::Access::Frozen) |
/// | in memory | [`Archive::new`] | [`Frozen`](crate::Access::Frozen) |
/// | mapped by the caller | [`Archive::mapped`] | [`Shared`](crate::Access::Shared) |
///
/// A tensor may have a misaligned address: a [`View`](crate::View) reads it, a slice of it is an error
/// ([`Error::Misaligned`]).
///
/// ```
/// use dlbridge::safetensors_0_8::Archive;
/// use dlbridge::{Tensor, TensorRef};
/// use safetensors::tensor::TensorView;
///
/// let weights = Tensor::from(vec![1.0_f32, 2.0, 3.0]);
/// let file = safetensors::serialize([("weights", TensorView::try_from(&weights)?)], None)?;
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

/// Makes a tensor over bytes of an owner's memory.
type Export<O> = fn(Arc<O>, &Placement<'_>, Range<usize>, Flags) -> Result<Handle, Error>;

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
    /// (`SIGBUS`). So its tensors are [`Shared`](crate::Access::Shared). A file that is replaced (renamed over, removed)
    /// keeps its values. `dlbridge_sealed::seal_file` makes a copy that nobody can change.
    ///
    /// ```no_run
    /// use dlbridge::safetensors_0_8::Archive;
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
    /// Those of the system, with the file's name, and [`InvalidData`](io::ErrorKind::InvalidData) for anything but a regular
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
        let shape =
            [i64::try_from(size)
                .map_err(|_| DescriptorError::SizeOverflow { what: "byte size" })?];
        let bytes = Tensor::in_buffer(DType::U8, &shape, Flags::NONE, |size| {
            let mut buffer = Buffer::zeroed(size)?;
            file.read_exact(buffer.as_mut()).map_err(refused)?;
            Ok(buffer)
        })?;
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
        Self::parse(owner, |owner, placement, range, _| {
            export_slice(owner, placement, OtherWriters::None, |owner| bytes(owner, range))
        })
    }

    /// Takes a file that the caller mapped. Another process may write to it at any time, so that
    /// its tensors are read by value only.
    ///
    /// ```no_run
    /// use dlbridge::safetensors_0_8::Archive;
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
        Self::parse(owner, |owner, placement, range, _| {
            export_slice(owner, placement, OtherWriters::Possible, |owner| bytes(owner, range))
        })
    }

    fn parse(owner: O, export: Export<O>) -> Result<Self, Error> {
        let contents = header::parse(owner.as_ref()).map_err(|reason| refused(FORMAT, reason))?;
        Ok(Self { owners: vec![Arc::new(owner)], contents, export })
    }
}

/// Bytes of an owner; none if it returns fewer bytes than before, which rejects the shape.
fn bytes<O: AsRef<[u8]>>(owner: &Arc<O>, range: Range<usize>) -> &[u8] {
    O::as_ref(owner).get(range).unwrap_or_default()
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
        let (dtype, shape) = (little_endian(entry.dtype)?, &entry.shape);
        let mut strides = vec![0; shape.len()];
        contiguous_strides(shape, &mut strides);
        let placement = Placement::new(dtype, shape, &strides, 0, Flags::NONE)?;
        let owner = Arc::clone(&self.owners[entry.file]);
        (self.export)(owner, &placement, entry.range.clone(), flags).map(Tensor)
    }
}

/// The type of the elements of a file's tensor.
///
/// # Errors
///
/// [`Refused`](Error::Refused) for a type that DLPack has no name for, and for numbers of several bytes
/// on a big-endian machine.
impl TryFrom<Dtype> for DType {
    type Error = Error;

    fn try_from(dtype: Dtype) -> Result<Self, Error> {
        little_endian(header::dtype_of(dtype).map_err(|reason| refused(FORMAT, reason))?)
    }
}

/// The name of a type of elements in a file.
///
/// # Errors
///
/// [`Refused`](Error::Refused) for a type that the format has no name for, and for numbers of several
/// bytes on a big-endian machine.
impl TryFrom<DType> for Dtype {
    type Error = Error;

    fn try_from(dtype: DType) -> Result<Self, Error> {
        little_endian(dtype)?;
        let found = DTYPES.iter().find(|(_, ours)| *ours == dtype);
        let &(theirs, _) = found.ok_or_else(|| refused(FORMAT, format!("no type for {dtype}")))?;
        Ok(theirs)
    }
}

/// The format stores numbers in little-endian order.
#[doc(hidden)]
pub fn little_endian(dtype: DType) -> Result<DType, Error> {
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

fn format(error: SafeTensorError) -> Error {
    refused(FORMAT, error.to_string())
}

/// Borrows a tensor for writing a file. The format has no name for some types. Copy a tensor that is not
/// contiguous, or that other code may write, with `to_contiguous` first.
fn view(checked: Checked<'_>) -> Result<TensorView<'_>, Error> {
    let dtype = Dtype::try_from(checked.dtype())?;
    let shape = checked.shape().iter().map(|&extent| extent as usize).collect();
    TensorView::new(dtype, shape, checked.bytes()?).map_err(format)
}

try_from!(['a] &'a Tensor => TensorView<'a>, tensor => view(tensor.checked()));
try_from!(['a] &'a TensorRef<'_> => TensorView<'a>, tensor => view(tensor.checked()));
try_from!(['a] &'a TensorMut<'_> => TensorView<'a>, tensor => view(tensor.checked()));
