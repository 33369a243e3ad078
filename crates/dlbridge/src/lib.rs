#![doc = include_str!("../../../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod access;
mod accessors;
mod adapters;
mod device;
mod dims;
mod dtype;
mod error;
mod export;
mod flags;
pub mod layout;
mod raw;
mod runs;
mod tensor;
mod tensor_ref;
#[cfg(feature = "testing")]
pub mod testing;
mod view;

pub use access::Access;
pub use device::{Device, DeviceKind};
pub use dlbridge_sys as sys;
pub use dtype::{DType, TypeCode};
pub use error::Error;
pub use export::Builder;
pub use flags::Flags;
pub use raw::{Element, Iter, Plain, ReadCell};
pub use tensor::{Producer, Tensor};
pub use tensor_ref::{TensorMut, TensorRef};
pub use view::{View, ViewMut};

/// The most axes that a tensor may have, as in NumPy.
pub const MAX_RANK: usize = 64;
