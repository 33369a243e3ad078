//! `safetensors` 0.8: the tensors of a file without a copy, and tensors as views to write.
//! Feature `safetensors-0_8`.
//!
//! [`Archive`] returns the tensors of a file, read-only, in the memory of the file, which each tensor
//! keeps alive. A contiguous tensor becomes a `TensorView`, by [`view_as`](Tensor::view_as), to write a file.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use safetensors::tensor::{Dtype, Metadata, SafeTensorError, SafeTensors, TensorView};

use crate::layout::Placement;
use crate::layout::{contiguous_strides, extents};
use crate::raw::Checked;
use crate::raw::buffer::Buffer;
use crate::raw::owner::{OtherWriters, export_slice};
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

/// A safetensors file in memory, and the tensors in it.
///
/// The owner of the memory is any `AsRef<[u8]>`: a `Vec<u8>`, an `Arc<[u8]>`,
/// `Bytes`, a mapped file. Each tensor shares it and keeps it alive.
///
/// | the file is | make it by | class of its tensors |
/// | --- | --- | --- |
/// | on disk | [`Archive::read`], into new memory | [`Frozen`](crate::Access::Frozen) |
/// | in memory | [`Archive::new`] | [`Frozen`](crate::Access::Frozen) |
/// | mapped | [`Archive::mapped`] | [`Shared`](crate::Access::Shared) |
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
    owner: Arc<O>,
    metadata: Metadata,
    /// Where the header ends, and offsets count from.
    start: usize,
    writers: OtherWriters,
}

impl<O> fmt::Debug for Archive<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("metadata", &self.metadata).finish_non_exhaustive()
    }
}

impl Archive<TensorSlice<u8>> {
    /// Reads a file into new memory.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with the message of the system or of safetensors, or
    /// [`OutOfMemory`](Error::OutOfMemory).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let refused = |error: std::io::Error| refused("file", error.to_string());
        let mut file = File::open(path).map_err(refused)?;
        let size = file.metadata().map_err(refused)?.len();
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
    /// [`Refused`](Error::Refused) with the message of safetensors.
    pub fn new(owner: O) -> Result<Self, Error> {
        Self::parse(owner, OtherWriters::None)
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
    ///     println!("{name}: {:?}", archive.tensor(&name)?);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with the message of safetensors.
    pub fn mapped(owner: O) -> Result<Self, Error> {
        Self::parse(owner, OtherWriters::Possible)
    }

    fn parse(owner: O, writers: OtherWriters) -> Result<Self, Error> {
        let (header, metadata) = SafeTensors::read_metadata(owner.as_ref()).map_err(format)?;
        // The header is preceded by its own size.
        let start = size_of::<u64>() + header;
        Ok(Self { owner: Arc::new(owner), metadata, start, writers })
    }

    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.metadata.offset_keys()
    }

    /// The metadata of the file.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// One tensor, read-only, in the memory of the file.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) for a type that DLPack
    /// has no name for, and for numbers of several bytes on a machine that stores them
    /// big end first.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let unknown = || Error::UnknownName { what: "tensor", name: name.into() };
        let info = self.metadata.info(name).ok_or_else(unknown)?;
        let dtype = DType::try_from(info.dtype)?;
        let shape = extents(&info.shape)?;
        let mut strides = vec![0; shape.len()];
        contiguous_strides(&shape, &mut strides);
        let placement = Placement::new(dtype, &shape, &strides, 0, Flags::NONE)?;
        let (first, last) = info.data_offsets;
        let range = self.start + first..self.start + last;
        let owner = Arc::clone(&self.owner);
        let handle = export_slice(owner, &placement, self.writers, |owner: &Arc<O>| {
            // If the owner returns fewer bytes than before, this rejects the shape.
            O::as_ref(owner).get(range).unwrap_or_default()
        });
        handle.map(Tensor)
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
        let found = DTYPES.iter().find(|(theirs, _)| *theirs == dtype);
        let &(_, ours) =
            found.ok_or_else(|| refused(FORMAT, format!("no DLPack type for {dtype}")))?;
        little_endian(ours)
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
fn little_endian(dtype: DType) -> Result<DType, Error> {
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
