//! Python's buffer protocol (PEP 3118): what both directions need, and the export.
//! Taking another object's buffer belongs to `fallback/buffer`.
//! Invariant: nothing here is part of the limited API before Python 3.11, so all of it is declared
//! here as every CPython since 3.0 has it.

pub(crate) mod abi;
mod export;
pub(crate) mod format;
mod slots;

pub(crate) use slots::install;
