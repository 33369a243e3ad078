//! Elements in memory: read, written, copied, allocated and exported, through validated descriptors.

pub(crate) mod buffer;
mod cell;
mod copy;
pub(crate) mod elements;
pub(crate) mod exclusive;
pub(crate) mod iter;
pub(crate) mod owner;
#[cfg(feature = "rayon")]
mod parallel;
mod rows;
mod slice;
mod strided;
pub(crate) mod write;

pub use cell::ReadCell;
pub use iter::Iter;
pub(crate) use rows::RowElements;
