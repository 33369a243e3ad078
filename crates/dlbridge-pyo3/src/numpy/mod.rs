//! NumPy's C API, and its element types.
//! Invariant: nothing is assumed of a NumPy whose C API does not say that it is one of `api`'s.

mod api;
mod dtypes;

pub(crate) use api::{Api, MAX_RANK, WRITEABLE, is_array_type};
pub(crate) use dtypes::{DTYPES, number_of};
