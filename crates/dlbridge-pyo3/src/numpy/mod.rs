//! NumPy arrays by NumPy's own C API, without a Python call or a capsule of DLPack.
//! Other frameworks, and what this does not cover of NumPy, belong to `ask` and `frameworks`.
//! Invariant: nothing is assumed of a NumPy whose C API does not say that it is one of `api`'s.

mod api;
mod dtypes;
mod empty;
mod export;
mod import;

pub(crate) use api::is_array_type;
pub(crate) use empty::zeros;
pub(crate) use export::array;
pub(crate) use import::{describe, import};
