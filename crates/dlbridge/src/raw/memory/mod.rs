//! Elements in memory: read, written, copied, allocated and exported, through validated descriptors.

pub(crate) mod buffer;
pub(crate) mod elements;
pub(crate) mod iter;
pub(crate) mod owner;
#[cfg(feature = "rayon")]
mod parallel;
pub(crate) mod slice;
mod strided;
pub(crate) mod write;

pub use self::elements::ReadCell;
pub use self::iter::Iter;
pub(crate) use self::iter::RowElements;
