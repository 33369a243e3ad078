//! The fallback for systems without sealed memory files: every call is an error.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::safetensors_0_8::header::Entry;
use dlbridge::{DType, Error, Tensor};

use crate::refused;
use crate::wait::{Deadline, WaitError};

pub(crate) fn unsupported<T>() -> Result<T, Error> {
    Err(refused(format!("expected Linux, found {}; send the bytes instead", std::env::consts::OS)))
}

/// A mapping that is only read.
pub(crate) type Map = Vec<u8>;
/// A message that was received.
pub(crate) type Taken = (Arc<[Entry]>, BTreeMap<String, String>, Lease);

/// Declares types without a value, whose methods are never called.
macro_rules! absent {
    ($($kind:ident: $($method:ident($($argument:ty),*) -> $result:ty),*;)*) => {$(
        #[derive(Debug)]
        pub(crate) struct $kind(Infallible);

        impl $kind {
            $(pub(crate) fn $method(&self, $(_: $argument),*) -> $result {
                match self.0 {}
            })*
        }
    )*};
}

absent! {
    NewFile: write(usize, &[u8]) -> Result<(), Error>, map() -> Result<Unsplit, Error>,
        seal() -> Result<(SealedFile, Map), (Self, Error)>;
    Unsplit: split(&Range<usize>) -> Result<Region, Error>, regions() -> usize;
    Region:;
    SealedFile: map_private(&Range<usize>) -> Result<Vec<u8>, Error>, map_private_whole() -> Result<Unsplit, Error>,
        try_clone() -> Result<Self, Error>;
    End: send(&Arc<UsedSlot>, &[u8], Deadline) -> Result<(), WaitError>, flush_until(Deadline) -> Result<(), WaitError>,
        wait(Deadline) -> Result<bool, Error>, take() -> Option<Result<Option<Taken>, Error>>, collect() -> bool,
        leases() -> usize, sent_slots() -> Vec<u32>, check_inbox() -> Result<(), Error>, kept() -> (usize, usize),
        close() -> ();
    Lease: tensor(&Entry) -> Result<Tensor, Error>;
    UsedSlot: is_of(&Arc<Slots>) -> bool, entries() -> &[Entry], regions() -> Result<Vec<Region>, Error>,
        alive() -> usize;
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

#[cfg(unix)]
impl SealedFile {
    pub(crate) fn check(_file: OwnedFd) -> Result<(Self, Map), Error> {
        unsupported()
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        match self.0 {}
    }
}

#[cfg(unix)]
impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

impl End {
    pub(crate) fn pair() -> Result<(Self, Self), Error> {
        unsupported()
    }
}

#[cfg(unix)]
impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.0 {}
    }
}

pub(crate) fn readable(_: &[&Arc<End>], _: Duration) -> Result<(), Error> {
    unsupported()
}

#[derive(Debug)]
pub(crate) struct Slots;

impl Slots {
    pub(crate) fn new(_limit: usize) -> Self {
        Self
    }

    pub(crate) fn nbytes(&self) -> usize {
        0
    }

    pub(crate) fn is_elsewhere(&self) -> bool {
        false
    }

    pub(crate) fn in_use(&self) -> usize {
        0
    }

    pub(crate) fn plan(&self, _: &[(&str, DType, &[i64])]) -> Result<Infallible, Error> {
        unsupported()
    }

    pub(crate) fn reuse(&self, plan: &Infallible) -> Result<Option<UsedSlot>, Error> {
        match *plan {}
    }

    pub(crate) fn take(&self, plan: &Infallible) -> Result<Option<UsedSlot>, Error> {
        match *plan {}
    }
}
