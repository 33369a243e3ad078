//! The fallback for systems without sealed memory files: every call is an error.

use std::ops::Range;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd};

use dlbridge::Error;

use crate::{SealedTensors, refused};

/// A descriptor of a file.
#[cfg(unix)]
pub(crate) type Descriptor = std::os::fd::OwnedFd;
#[cfg(not(unix))]
pub(crate) type Descriptor = std::convert::Infallible;

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

/// Declares types without a value, whose methods are never called.
macro_rules! absent {
    ($($kind:ident: $($method:ident($($argument:ty),*) -> $result:ty),*;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $kind(std::convert::Infallible);

        impl $kind {
            $(pub(crate) fn $method(&self, $(_: $argument),*) -> $result {
                match self.0 {}
            })*
        }
    )*};
}
pub(crate) use absent;

/// A mapping that is only read.
pub(crate) type Map = Vec<u8>;

absent! {
    NewFile: write(usize, &[u8]) -> Result<(), Error>, map() -> Result<Unsplit, Error>,
        seal() -> Result<(SealedFile, Map), (Self, Error)>;
    Unsplit: split(&Range<usize>) -> Result<Region, Error>, regions() -> usize;
    Region:;
    SealedFile: map_private(&Range<usize>) -> Result<Vec<u8>, Error>, map_private_whole() -> Result<Unsplit, Error>,
        try_clone() -> Result<Self, Error>, into_fd() -> Descriptor;
}

impl NewFile {
    pub(crate) fn create(_size: usize) -> Result<Self, Error> {
        unsupported()
    }
}

impl AsMut<[u8]> for Region {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.0 {}
    }
}

impl SealedFile {
    pub(crate) fn check(_file: Descriptor) -> Result<(Self, Map), Error> {
        unsupported()
    }
}

#[cfg(unix)]
impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}
