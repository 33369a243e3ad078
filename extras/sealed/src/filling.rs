//! From declared tensors, or copies of tensors and files, to a sealed file: allocated, filled, sealed.
//! Invariant: a region of the file is in one tensor at most, and sealing needs all of them dropped.
//! The file is written by system calls only before it is mapped.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;

use crate::safetensors_0_8::file::{self, FileError};
use crate::safetensors_0_8::little_endian;
use dlbridge::{DType, Error, Tensor};

use crate::header::{Contents, Entry, plan};
use crate::memfd::{NewFile, Region, Unsplit};
use crate::{SealedTensors, refused};

/// How many bytes go to a file by one call: they stay in the processor's cache.
const BLOCK: usize = 64 << 10;
/// The name of a tensor that is sealed without one.
const ONE: &str = "tensor";

/// Declares the tensors of a sealed file: their names, types and shapes.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), dlbridge::Error> {
/// use dlbridge::DType;
/// use dlbridge_sealed::Builder;
///
/// let mut filling = Builder::new()
///     .tensor("weights", DType::F32, &[2, 3])
///     .tensor("bias", DType::F32, &[3])
///     .metadata("step", "7")
///     .allocate()?;
///
/// // Memory of the file itself: values computed here are not copied again.
/// let mut weights = filling.tensor("weights")?;
/// weights.as_slice_mut::<f32>()?.fill(1.0);
/// drop(weights);
///
/// let sealed = filling.seal()?;
/// assert_eq!(sealed.tensor("weights")?.as_slice::<f32>()?, [1.0; 6]);
/// assert_eq!(sealed.tensor("bias")?.as_slice::<f32>()?, [0.0; 3]);
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
#[derive(Clone, Default, Debug)]
#[must_use = "a builder does nothing until it allocates"]
pub struct Builder {
    tensors: Vec<(String, DType, Vec<i64>)>,
    metadata: BTreeMap<String, String>,
}

impl Builder {
    /// Declares no tensor yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a tensor. Tensors lie in the file in the order in which they are declared, each at a
    /// multiple of 64 bytes.
    pub fn tensor(mut self, name: impl Into<String>, dtype: DType, shape: &[i64]) -> Self {
        self.tensors.push((name.into(), dtype, shape.into()));
        self
    }

    /// Adds metadata: a string under a key.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Allocates all tensors in one memory file. They are zeros until they are filled.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory) for a size that the machine does not have (pages are
    /// allocated when they are filled), a shape or dtype that no tensor can have, or
    /// [`Refused`](Error::Refused) for a name that is used twice or reserved (`__metadata__`), for a header above 100 MB,
    /// and on systems other than Linux.
    pub fn allocate(self) -> Result<Filling, Error> {
        let (header, contents) = plan(self.tensors, self.metadata)?;
        let file = NewFile::create(contents.size)?;
        file.write(0, &header)?;
        Ok(Filling { file: Some(file), contents, mapped: None, regions: Vec::new() })
    }
}

/// Tensors in a memory file that is not sealed yet, made by [`Builder::allocate`].
///
/// No other process has the memory, because no call returns the descriptor before it is sealed. The
/// exception is a child that is forked before the seal: it inherits the file, and its writable mapping if a
/// tensor was [taken out](Self::tensor). [`seal`](Self::seal) then fails until the child has ended.
#[derive(Debug)]
pub struct Filling {
    /// `None` after it was sealed.
    file: Option<NewFile>,
    contents: Contents,
    /// `None` before a tensor is taken, and after an attempt to seal while no tensor was alive.
    mapped: Option<Unsplit>,
    /// Empty before a tensor is taken: until then, the file is written. `None` where a tensor has it.
    regions: Vec<Option<Region>>,
}

impl Filling {
    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.names()
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](dlbridge::Access::Exclusive). The file
    /// keeps what was written when the tensor is dropped.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), [`OutOfMemory`](Error::OutOfMemory), or
    /// [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = self.contents.find(name)?;
        let region = self.region(place)?.take().ok_or_else(|| taken(name))?;
        let entry = &self.contents.entries[place];
        Tensor::builder(region).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
    }

    /// Fills a tensor with a copy of another one, of any strides and class.
    ///
    /// # Errors
    ///
    /// [`DTypeMismatch`](Error::DTypeMismatch), another shape or padded elements, memory that the
    /// host cannot read, and those of [`tensor`](Self::tensor).
    pub fn copy_from(&mut self, name: &str, source: &Tensor) -> Result<(), Error> {
        let place = self.contents.find(name)?;
        let entry = &self.contents.entries[place];
        let Range { start, end } = entry.range;
        if source.dtype() != entry.dtype {
            return Err(Error::DTypeMismatch { found: source.dtype(), expected: entry.dtype });
        }
        if source.shape() != entry.shape || source.nbytes() != end - start {
            return Err(refused(format!(
                "expected {} bytes of shape {:?} for {name:?}, found {} of shape {:?}",
                end - start,
                entry.shape,
                source.nbytes(),
                source.shape()
            )));
        }
        match &self.file {
            Some(file) if self.regions.is_empty() && source.is_contiguous() => {
                source.write_to(FileAt { file, offset: start }).map_err(not_io)
            }
            _ => {
                let region = self.region(place)?.as_mut().ok_or_else(|| taken(name))?;
                source.copy_to_bytes(region.as_mut())
            }
        }
    }

    /// Fills a tensor with the bytes of its elements, in the machine's byte order, from a socket for
    /// instance. If no tensor was [taken out](Self::tensor), system calls write them to the file,
    /// which is quicker than writing to new memory.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")]
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use dlbridge::DType;
    /// use dlbridge_sealed::Builder;
    ///
    /// let socket = &[1.5_f32, 2.5].map(f32::to_ne_bytes).concat()[..];
    /// let mut filling = Builder::new().tensor("x", DType::F32, &[2]).allocate()?;
    /// filling.read_from("x", socket)?;
    /// let sealed = filling.seal()?;
    /// assert_eq!(sealed.tensor("x")?.as_slice::<f32>()?, [1.5, 2.5]);
    /// # Ok(())
    /// # }
    /// # #[cfg(not(target_os = "linux"))]
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the reader, [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) where it ends early,
    /// [`OutOfMemory`](io::ErrorKind::OutOfMemory), and those of [`tensor`](Self::tensor) as
    /// [`Other`](io::ErrorKind::Other).
    pub fn read_from(&mut self, name: &str, mut source: impl Read) -> io::Result<()> {
        let place = self.contents.find(name).map_err(io::Error::other)?;
        let Range { start, end } = self.contents.entries[place].range;
        match &self.file {
            Some(file) if self.regions.is_empty() => {
                let mut block = vec![0; BLOCK.min(end - start)];
                for offset in (start..end).step_by(BLOCK) {
                    let bytes = &mut block[..BLOCK.min(end - offset)];
                    source.read_exact(bytes)?;
                    file.write(offset, bytes)?;
                }
                Ok(())
            }
            _ => {
                let region = self.region(place)?;
                let region = region.as_mut().ok_or_else(|| io::Error::other(taken(name)))?;
                source.read_exact(region.as_mut())
            }
        }
    }

    /// The memory of a tensor, in the mapped file; `None` where a tensor has it.
    fn region(&mut self, place: usize) -> Result<&mut Option<Region>, Error> {
        if self.regions.is_empty() {
            let file =
                self.file.as_ref().ok_or_else(|| taken(&self.contents.entries[place].name))?;
            let mut unsplit = file.map()?;
            let regions =
                self.contents.entries.iter().map(|entry| unsplit.split(&entry.range).map(Some));
            self.regions = regions.collect::<Result<_, Error>>()?;
            self.mapped = Some(unsplit);
        }
        Ok(&mut self.regions[place])
    }

    /// How many tensors of [`tensor`](Self::tensor) are alive: [`seal`](Self::seal) fails until there
    /// is none.
    #[must_use]
    pub fn alive(&self) -> usize {
        let regions = self.mapped.as_ref().map_or(0, Unsplit::regions);
        regions - self.regions.iter().flatten().count()
    }

    /// Seals the file: from here on no process can change it, this one included. Tensors that were
    /// not filled are zeros.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) while a tensor of [`tensor`](Self::tensor) is alive, while a
    /// forked child still has the memory, and if the file is sealed already. A failure keeps the
    /// values: drop the tensors, then seal again.
    pub fn seal(&mut self) -> Result<SealedTensors, Error> {
        let alive = self.alive();
        if alive != 0 {
            return Err(refused(format!(
                "expected that all tensors to be filled are dropped, found {alive} alive"
            )));
        }
        let file = self.file.take();
        let file =
            file.ok_or_else(|| refused("expected tensors to seal, found them sealed".into()))?;
        // Unmaps the file.
        self.regions.fill_with(|| None);
        self.mapped = None;
        match file.seal() {
            Ok((file, map)) => Ok(SealedTensors::new(file, map, self.contents.clone())),
            Err((file, error)) => {
                self.file = Some(file);
                Err(error)
            }
        }
    }
}

/// Writes to a file from an offset on.
struct FileAt<'f> {
    file: &'f NewFile,
    offset: usize,
}

impl io::Write for FileAt<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(self.offset, bytes)?;
        self.offset += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The error that an [`io::Error`] was made of.
fn not_io(error: io::Error) -> Error {
    let refused = |error: io::Error| Error::Refused { by: "write", reason: error.to_string() };
    error.downcast().unwrap_or_else(refused)
}

fn taken(name: &str) -> Error {
    refused(format!("expected a tensor that is neither taken out nor sealed, found {name:?}"))
}

/// A sealed copy of one tensor, under the name `tensor`.
///
/// # Errors
///
/// As [`seal`].
impl TryFrom<&Tensor> for SealedTensors {
    type Error = Error;

    fn try_from(tensor: &Tensor) -> Result<Self, Error> {
        seal([(ONE, tensor)])
    }
}

/// Seals a copy of each tensor. A [`Builder`] avoids the copy of values that are still to be computed.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), dlbridge::Error> {
/// use dlbridge::Tensor;
/// use dlbridge_sealed::seal;
///
/// let (x, y) = (Tensor::from(vec![1_i32, 2]), Tensor::from(vec![0.5_f64]));
/// let sealed = seal([("x", &x), ("y", &y)])?;
/// assert_eq!(sealed.names().collect::<Vec<_>>(), ["x", "y"]);
/// # Ok(())
/// # }
/// # #[cfg(not(target_os = "linux"))]
/// # fn main() {}
/// ```
///
/// # Errors
///
/// [`NotHostAccessible`](Error::NotHostAccessible), and those of [`Builder::allocate`].
pub fn seal<'a, N: Into<String>>(
    tensors: impl IntoIterator<Item = (N, &'a Tensor)>,
) -> Result<SealedTensors, Error> {
    let tensors = tensors.into_iter().map(|(name, tensor)| (name.into(), tensor));
    let tensors: Vec<(String, &Tensor)> = tensors.collect();
    let builder = tensors.iter().fold(Builder::new(), |builder, (name, tensor)| {
        builder.tensor(name, tensor.dtype(), tensor.shape())
    });
    let mut filling = builder.allocate()?;
    for (name, tensor) in tensors {
        filling.copy_from(&name, tensor)?;
    }
    filling.seal()
}

/// Seals a copy of a safetensors file, or of a sharded model by its index (`*.index.json`): one copy for all processes
/// of the machine. None of them can change it, and later changes of the file do not reach it.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// let sealed = dlbridge_sealed::seal_file("model.safetensors")?;
/// println!("{} tensors", sealed.names().len());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of [`Archive::open`](crate::safetensors_0_8::Archive::open),
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) for a file that is cut off while it is read, and those of
/// [`Builder::allocate`].
pub fn seal_file(path: impl AsRef<Path>) -> io::Result<SealedTensors> {
    let path = path.as_ref();
    let Contents { entries, metadata, .. } = file::open(path, |_, _| Ok(()))?;
    let mut builder = Builder::new();
    for Entry { name, dtype, shape, .. } in &entries {
        builder = builder.tensor(name, little_endian(*dtype)?, shape);
    }
    let texts = metadata.into_iter();
    let builder = texts.fold(builder, |builder, (key, value)| builder.metadata(key, value));
    let mut filling = builder.allocate()?;
    // Opened once more, so that one shard is open at a time. The tensors of a file follow each other without a gap.
    let again = file::open(path, |file, entries| {
        entries.iter().try_for_each(|entry| filling.read_from(&entry.name, file))
    })?;
    if again.entries != entries {
        let reason = "expected the same tensors while the file is copied, found others";
        return Err(FileError::of(path)(io::Error::new(io::ErrorKind::InvalidData, reason)));
    }
    Ok(filling.seal()?)
}
