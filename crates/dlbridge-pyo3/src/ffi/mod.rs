//! Foreign things: the C structs and functions of Python, NumPy, Arrow, DLPack and CUDA.
#![allow(unsafe_code, reason = "the room for it: the files above have safe types")]

pub(crate) mod acquired;
#[cfg(feature = "columns")]
pub(crate) mod arrow;
pub(crate) mod borrow;
pub(crate) mod buffer;
pub(crate) mod callbacks;
pub(crate) mod capsule;
#[cfg(feature = "cudarc-0_19")]
pub(crate) mod capture;
pub(crate) mod class;
pub(crate) mod cycle;
#[cfg(feature = "cuda")]
pub(crate) mod driver;
#[cfg(not(feature = "cuda"))]
#[path = "no_driver.rs"]
pub(crate) mod driver;
#[cfg(feature = "tensor-methods")]
pub(crate) mod elements;
pub(crate) mod instance;
pub(crate) mod interface;
pub(crate) mod memory;
pub(crate) mod numpy;
pub(crate) mod published;
pub(crate) mod stream;
pub(crate) mod table;
pub(crate) mod torch;
pub(crate) mod type_version;
pub(crate) mod versions;
