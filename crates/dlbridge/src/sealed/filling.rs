//! From declared tensors to a sealed file: allocated, filled, sealed.
//! Invariant: a region of the file is in one tensor at most, and sealing needs all of them dropped.

use std::collections::BTreeMap;

use super::header::{Contents, plan};
use super::raw::{NewFile, Region, Unsplit};
use super::{SealedTensors, refused};
use crate::{DType, Error, Tensor};

/// Declares the tensors of a sealed file: their names, types and shapes.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// # fn main() -> Result<(), dlbridge::Error> {
/// use dlbridge::DType;
/// use dlbridge::sealed::Builder;
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

    /// Adds a text that travels with the tensors.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Allocates all tensors in one memory file. They are zeros until they are filled.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](Error::OutOfMemory), a shape or dtype that no tensor can have, or
    /// [`Refused`](Error::Refused) for a name that is used twice or reserved (`__metadata__`, and
    /// names that begin with `__pad_`), for metadata whose key begins with `dlbridge:`, and on
    /// systems other than Linux.
    pub fn allocate(self) -> Result<Filling, Error> {
        let (header, contents) = plan(self.tensors, self.metadata)?;
        let file = NewFile::create(contents.size)?;
        let mut unsplit = file.map()?;
        unsplit.split(&(0..header.len()))?.as_mut().copy_from_slice(&header);
        let regions = contents.entries.iter().map(|entry| unsplit.split(&entry.range).map(Some));
        let regions = regions.collect::<Result<_, Error>>()?;
        Ok(Filling { file: Some(file), contents, mapped: Some(unsplit), regions })
    }
}

/// Tensors in a memory file that is not sealed yet, made by [`Builder::allocate`].
///
/// No other process has the memory: no call returns the descriptor before it is sealed. A child that
/// is forked before that is the exception: it inherits every shared mapping, and delays sealing.
#[derive(Debug)]
pub struct Filling {
    /// `None` after it was sealed.
    file: Option<NewFile>,
    contents: Contents,
    /// `None` from the first attempt to seal on that no tensor prevented.
    mapped: Option<Unsplit>,
    /// `None` where a tensor has it.
    regions: Vec<Option<Region>>,
}

impl Filling {
    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.names()
    }

    /// Takes a tensor out to be filled, once: class [`Exclusive`](crate::Access::Exclusive). Dropping
    /// it leaves what was written in the file.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) if it was taken before.
    pub fn tensor(&mut self, name: &str) -> Result<Tensor, Error> {
        let place = self.contents.find(name)?;
        let entry = &self.contents.entries[place];
        let region = self.regions[place].take().ok_or_else(|| taken(name))?;
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
        let region = self.regions[place].as_mut().ok_or_else(|| taken(name))?.as_mut();
        if source.dtype() != entry.dtype {
            return Err(Error::DTypeMismatch { found: source.dtype(), expected: entry.dtype });
        }
        if source.shape() != entry.shape || source.nbytes() != region.len() {
            return Err(refused(format!(
                "expected {} bytes of shape {:?} for {name:?}, found {} of shape {:?}",
                region.len(),
                entry.shape,
                source.nbytes(),
                source.shape()
            )));
        }
        source.parts().copy_to_bytes(region)
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
    /// forked child still has the memory, and after a success. What was filled is kept: drop the
    /// tensors, then seal again.
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
            Ok(file) => SealedTensors::open(file),
            Err((file, error)) => {
                self.file = Some(file);
                Err(error)
            }
        }
    }
}

fn taken(name: &str) -> Error {
    refused(format!("expected a tensor that is neither taken out nor sealed, found {name:?}"))
}
