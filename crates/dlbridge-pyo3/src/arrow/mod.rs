//! Arrow's C data interface: the declarations that import and export share. They are written from
//! Arrow's specification, so that this crate does not depend on a version of an Arrow library.

mod abi;
mod format;

pub(crate) use abi::{ArrowArray, ArrowArrayStream, ArrowSchema, Owned, Releasable};
pub(crate) use format::{dtype_of, format_of, list_size_of, refused};
