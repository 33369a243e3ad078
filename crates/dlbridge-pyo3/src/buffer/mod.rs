//! Python's buffer protocol (PEP 3118): the declarations that import and export share.
//! The limited API has them since Python 3.11 only, so they are declared here, as in every CPython
//! since 3.0.

mod abi;
mod format;

pub(crate) use abi::*;
pub(crate) use format::format_of;
#[cfg(not(windows))]
pub(crate) use format::{dtype_of, size_of_item};
