//! `SealedTensors`: a sealed file and its tensors.
//! Invariant: the header is read from the mapping after the seals were checked.

use std::collections::BTreeMap;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use dlbridge::{Error, Tensor};

use crate::header::{Contents, Entry};
use crate::memfd::{Map, SealedFile};
use crate::safetensors_0_8::Part;

/// Named tensors in a sealed memory file, which no process can change.
///
/// Each tensor keeps the memory alive; neither the file's descriptor nor the process that made it is
/// needed for that. The memory is freed with its last descriptor and its last tensor in any process.
#[derive(Debug)]
pub struct SealedTensors {
    file: SealedFile,
    map: Arc<Map>,
    contents: Arc<Contents>,
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(crate) handles: Arc<crate::serve::Handles>,
}

impl SealedTensors {
    /// The names of the tensors, in the order of the file.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.contents.names()
    }

    /// The metadata of the file: strings by their keys.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.contents.metadata
    }

    /// The size of the file in bytes.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        self.contents.size
    }

    /// A tensor, read-only: class [`Frozen`](dlbridge::Access::Frozen).
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName).
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let entry = &self.contents.entries[self.contents.find(name)?];
        let owner = Part { owner: Arc::clone(&self.map), range: entry.range.clone() };
        Tensor::builder(owner).dtype(entry.dtype).shape(&entry.shape).build_read_only::<u8>()
    }

    /// A writable tensor over a private mapping: class [`Exclusive`](dlbridge::Access::Exclusive).
    /// A page is copied at the first write to it; the file and other tensors keep their values.
    ///
    /// # Errors
    ///
    /// [`UnknownName`](Error::UnknownName), or [`Refused`](Error::Refused) with what the system
    /// says: a process has 65,530 mappings at most, unless its machine says otherwise.
    /// [`private_tensors`](Self::private_tensors) needs one.
    pub fn private(&self, name: &str) -> Result<Tensor, Error> {
        let entry = &self.contents.entries[self.contents.find(name)?];
        if entry.range.is_empty() {
            return Tensor::zeros(entry.dtype, &entry.shape);
        }
        let owner = self.file.map_private(&entry.range)?;
        Tensor::builder(owner).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
    }

    /// All tensors in the order of [`names`](Self::names), writable as those of
    /// [`private`](Self::private), over one private mapping: for files of many tensors. The pages that
    /// they copied are freed with the last of them.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) with what the system says.
    pub fn private_tensors(&self) -> Result<Vec<Tensor>, Error> {
        let mut mapped = self.file.map_private_whole()?;
        let tensor = |entry: &Entry| {
            let region = mapped.split(&entry.range)?;
            Tensor::builder(region).dtype(entry.dtype).shape(&entry.shape).build::<u8>()
        };
        self.contents.entries.iter().map(tensor).collect()
    }

    /// The same tensors over the same memory, with a second descriptor.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) if the process has no descriptor left.
    pub fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            file: self.file.try_clone()?,
            map: Arc::clone(&self.map),
            contents: Arc::clone(&self.contents),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            handles: Arc::clone(&self.handles),
        })
    }

    pub(crate) fn new(file: SealedFile, map: Map, contents: Contents) -> Self {
        Self {
            file,
            map: Arc::new(map),
            contents: Arc::new(contents),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            handles: Arc::default(),
        }
    }
}

/// Accepts a file of any origin that is sealed and has the layout.
#[cfg(unix)]
impl TryFrom<OwnedFd> for SealedTensors {
    type Error = Error;

    /// Maps a file that this or another process sealed.
    ///
    /// # Errors
    ///
    /// [`Refused`](Error::Refused) for anything but a memory file of ordinary pages that has the
    /// seals `WRITE`, `SHRINK`, `GROW` and `SEAL`, for a header that does not fit the file, for
    /// tensors that overlap or do not begin at a multiple of 64 bytes, and for shapes that no tensor
    /// can have.
    fn try_from(file: OwnedFd) -> Result<Self, Error> {
        let (file, map) = SealedFile::check(file)?;
        let contents = crate::header::parse(&map)?;
        Ok(Self::new(file, map, contents))
    }
}

#[cfg(unix)]
impl AsFd for SealedTensors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The descriptor, to be sent or kept. Tensors stay valid.
#[cfg(unix)]
impl From<SealedTensors> for OwnedFd {
    fn from(sealed: SealedTensors) -> Self {
        sealed.file.into_fd()
    }
}

/// Opens sealed tensors by a handle: on Linux. Here, it is an error.
///
/// # Errors
///
/// [`Refused`](Error::Refused).
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub fn open_handle(_handle: &[u8]) -> Result<SealedTensors, Error> {
    crate::memfd::unsupported()
}
