//! Errors, and their statuses in C.
//! Storing the message for C belongs to `entry`.
//! Invariant: every failure has exactly one status and one message.

use std::ffi::{c_char, c_int};
use std::fmt;

use dlbridge::protocol::Refusal;

/// How a call ended. Every failure has a message: `dlb_last_error`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum Status {
    /// The call succeeded.
    Ok = 0,
    /// An argument is null, or a struct has the wrong `struct_size`: a mistake in the calling code.
    Invalid = 1,
    /// A tensor was rejected, or cannot be exported as asked. The message names the field.
    Refused = 2,
    /// The Python object does not support DLPack.
    Unsupported = 3,
    /// Python raised an exception, whose type and text are the message. It is cleared, unless the
    /// request says `keep_exception`.
    Python = 4,
    /// No running Python was found, or the calling thread is not attached to it.
    NotAttached = 5,
    /// A bug in this library. What the call was to consume may leak.
    Panic = 6,
}

/// The name of a status, such as `DLB_STATUS_REFUSED`; for any other number `unknown status`. It lives
/// forever.
#[unsafe(no_mangle)]
pub extern "C" fn dlb_status_name(status: c_int) -> *const c_char {
    let names = [
        c"DLB_STATUS_OK",
        c"DLB_STATUS_INVALID",
        c"DLB_STATUS_REFUSED",
        c"DLB_STATUS_UNSUPPORTED",
        c"DLB_STATUS_PYTHON",
        c"DLB_STATUS_NOT_ATTACHED",
        c"DLB_STATUS_PANIC",
    ];
    let name = usize::try_from(status).ok().and_then(|status| names.get(status));
    name.unwrap_or(&c"unknown status").as_ptr()
}

pub(crate) const NULL_TENSOR: Error =
    Error::Invalid("tensor: expected a tensor, found a null pointer");
pub(crate) const NULL_OUT: Error =
    Error::Invalid("out: expected a place to write to, found a null pointer");

/// The error of this crate.
#[derive(Debug)]
pub(crate) enum Error {
    Invalid(&'static str),
    Tensor(dlbridge::Error),
    /// A tensor is not what the caller's code can use.
    Unexpected(String),
    Unsupported(String),
    /// A struct of the caller is smaller than its first version, or was not initialised.
    StructSize {
        expected: usize,
        found: usize,
    },
    /// A struct of the caller uses fields that this library does not know.
    NewerStruct {
        expected: usize,
        found: usize,
    },
    Python(Box<dyn Restore>),
    /// The same, to be set again.
    Raised(Box<dyn Restore>),
    NotAttached(String),
}

/// An exception of Python, which `python` fetched.
pub(crate) trait Restore: fmt::Debug + fmt::Display {
    /// Sets it again.
    fn restore(self: Box<Self>);
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Drops the error, or sets its exception again.
    pub(crate) fn finish(self) {
        if let Self::Raised(exception) = self {
            exception.restore();
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Invalid(_) | Self::StructSize { .. } | Self::NewerStruct { .. } => {
                Status::Invalid
            }
            Self::Tensor(_) | Self::Unexpected(_) => Status::Refused,
            Self::Unsupported(_) => Status::Unsupported,
            Self::Python(_) | Self::Raised(_) => Status::Python,
            Self::NotAttached(_) => Status::NotAttached,
        }
    }
}

/// The message of a tensor error, without the Rust call that helps, or with C's.
fn in_c(error: &dlbridge::Error) -> String {
    let mut message = error.to_string();
    if let Some(rust) = error.help() {
        message.truncate(message.len() - rust.len() - "; ".len());
    }
    message
        + match error {
            dlbridge::Error::LegacyReadOnly | dlbridge::Error::LegacyPadded { .. } => {
                "; use dlb_into_versioned"
            }
            _ => "",
        }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(reason) => f.write_str(reason),
            Self::Tensor(error) => f.write_str(&in_c(error)),
            Self::Unexpected(reason) | Self::Unsupported(reason) | Self::NotAttached(reason) => {
                f.write_str(reason)
            }
            Self::StructSize { expected, found } => write!(
                f,
                "struct_size: expected {expected}, found {found}; set it to sizeof the struct"
            ),
            Self::NewerStruct { expected, found } => write!(
                f,
                "struct_size: expected {expected}, found {found} with fields that this library does \
                 not know: zero the struct first, or the program was compiled for a newer library"
            ),
            Self::Python(exception) | Self::Raised(exception) => exception.fmt(f),
        }
    }
}

impl From<dlbridge::Error> for Error {
    fn from(error: dlbridge::Error) -> Self {
        Self::Tensor(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Unsupported(refusal.to_string())
    }
}
