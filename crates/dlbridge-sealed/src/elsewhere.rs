//! The fallback for systems without sealed memory files: every call is an error.

use std::convert::Infallible;
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use dlbridge::Error;

use crate::{SealedTensors, refused};

/// A descriptor of a file.
#[cfg(unix)]
pub(crate) type Descriptor = std::os::fd::OwnedFd;
#[cfg(not(unix))]
pub(crate) type Descriptor = Infallible;

pub(crate) fn unsupported<T>() -> Result<T, Error> {
    Err(refused(format!("expected Linux, found {}; send the bytes instead", std::env::consts::OS)))
}

/// Opens sealed tensors by a handle: on Linux. Here, it is an error.
///
/// # Errors
///
/// [`Refused`](Error::Refused).
pub fn open_handle(_handle: &[u8]) -> Result<SealedTensors, Error> {
    unsupported()
}

/// A mapping that is only read.
pub(crate) type Map = Vec<u8>;

#[derive(Debug)]
pub(crate) struct NewFile(Infallible);

impl NewFile {
    pub(crate) fn create(_size: usize) -> Result<Self, Error> {
        unsupported()
    }

    pub(crate) fn write(&self, _offset: usize, _bytes: &[u8]) -> Result<(), Error> {
        match self.0 {}
    }

    pub(crate) fn map(&self) -> Result<Unsplit, Error> {
        match self.0 {}
    }

    pub(crate) fn seal(self) -> Result<(SealedFile, Map), (Self, Error)> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct Unsplit(Infallible);

impl Unsplit {
    pub(crate) fn split(&mut self, _range: &Range<usize>) -> Result<Region, Error> {
        match self.0 {}
    }

    pub(crate) fn regions(&self) -> usize {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct Region(Infallible);

impl AsMut<[u8]> for Region {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(crate) struct SealedFile(Infallible);

impl SealedFile {
    pub(crate) fn check(_file: Descriptor) -> Result<(Self, Map), Error> {
        unsupported()
    }

    pub(crate) fn map_private(&self, _range: &Range<usize>) -> Result<Vec<u8>, Error> {
        match self.0 {}
    }

    pub(crate) fn map_private_whole(&self) -> Result<Unsplit, Error> {
        match self.0 {}
    }

    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        match self.0 {}
    }

    #[cfg(unix)]
    pub(crate) fn into_fd(self) -> Descriptor {
        match self.0 {}
    }
}

#[cfg(unix)]
impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
