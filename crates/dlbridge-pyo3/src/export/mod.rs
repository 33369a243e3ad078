//! Exports tensors to Python: `dlbridge.Tensor`, users' classes, NumPy arrays, capsules.

pub(crate) mod answer;
mod buffer;
mod buffer_slots;
mod capsule;
pub(crate) mod class;
mod dlpack_method;
pub(crate) mod exchange;
pub(crate) mod methods;
mod numpy;
mod object;
mod object_methods;
mod parts;
mod values;

pub(crate) use capsule::{KEEPER, legacy as legacy_capsule};
pub use class::{ExportDlpack, Lend};
pub(crate) use numpy::array as numpy_array;
pub use object::TensorObject;
