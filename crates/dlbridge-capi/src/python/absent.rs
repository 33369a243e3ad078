//! Why Python cannot be used.

use std::fmt;

use crate::error::Error;

/// The oldest Python whose code may call this library's class.
pub(super) const OLDEST: (u32, u32) = (3, 11);

/// Why there is no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// No library of the process exports Python's functions.
    Nowhere,
    /// There is one that is older than [`OLDEST`].
    TooOld(String),
    /// There is one without this function.
    Incomplete(&'static str),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = OLDEST;
        match self {
            Self::Nowhere => f.write_str("python: expected one in this process, found none"),
            Self::TooOld(found) => {
                write!(f, "python: expected {major}.{minor} or newer, found {found}")
            }
            Self::Incomplete(name) => write!(f, "python: expected CPython, found no {name}"),
        }
    }
}

impl From<Absent> for Error {
    fn from(absent: Absent) -> Self {
        Self::NotAttached(absent.to_string())
    }
}
