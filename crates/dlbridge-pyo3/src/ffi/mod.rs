//! Foreign things: the C structs and functions of Python, NumPy, Arrow, DLPack and CUDA.

pub(crate) mod arrow;
pub(crate) mod buffer;
pub(crate) mod callbacks;
pub(crate) mod capsule;
pub(crate) mod driver;
pub(crate) mod free_threaded;
pub(crate) mod head;
pub(crate) mod numpy;
pub(crate) mod versions;
