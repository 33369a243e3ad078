//! Why a call failed, and the status that C sees.
//! Keeping the message for C does not belong here (see `entry`).
//! Invariant: every failure has exactly one status and one message.

use std::fmt;

use crate::python::Exception;

/// How a call ended. Everything but `OK` comes with a message, see `dlb_last_error`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// It did what was asked.
    Ok = 0,
    /// An argument is null, or out of range.
    Invalid = 1,
    /// A tensor was refused, or cannot be had as asked. The message names the field.
    Refused = 2,
    /// The object is nothing that speaks DLPack.
    Unsupported = 3,
    /// Python raised an exception. It is not set any more; the message holds its type and text.
    Python = 4,
    /// There is no running Python in this process, or the calling thread does not hold its lock.
    NotAttached = 5,
    /// A fault of this library.
    Panic = 6,
}

/// What goes wrong inside this crate.
#[derive(Debug)]
pub(crate) enum Error {
    Invalid(&'static str),
    Tensor(dlbridge::Error),
    Unsupported(String),
    Python(Exception),
    NotAttached(&'static str),
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Invalid(_) => Status::Invalid,
            Self::Tensor(_) => Status::Refused,
            Self::Unsupported(_) => Status::Unsupported,
            Self::Python(_) => Status::Python,
            Self::NotAttached(_) => Status::NotAttached,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) | Self::NotAttached(reason) => f.write_str(reason),
            Self::Tensor(error) => error.fmt(f),
            Self::Unsupported(reason) => f.write_str(reason),
            Self::Python(exception) => exception.fmt(f),
        }
    }
}

impl From<dlbridge::Error> for Error {
    fn from(error: dlbridge::Error) -> Self {
        Self::Tensor(error)
    }
}

impl From<Exception> for Error {
    fn from(exception: Exception) -> Self {
        Self::Python(exception)
    }
}
