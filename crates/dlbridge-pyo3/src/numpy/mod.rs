//! NumPy's C API, and its element types.
//! Invariant: a NumPy is used only if its C API version is one of those in `api`.

mod api;
mod dtypes;

pub(crate) use api::{Api, MAX_RANK, WRITEABLE, is_array_type};
pub(crate) use dtypes::{DTYPES, number_of};
