//! Python's buffer protocol (PEP 3118), as far as both directions need it.
//! Invariant: nothing here is part of the limited API before Python 3.11, so all of it is declared
//! here as every CPython since 3.0 has it.

mod abi;
mod format;

pub(crate) use abi::*;
pub(crate) use format::format_of;
#[cfg(not(windows))]
pub(crate) use format::{dtype_of, size_of_item};
