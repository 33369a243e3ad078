//! Exports tensors to Python: `dlbridge.Tensor`, users' classes, NumPy arrays, capsules.

mod answer;
mod arrow;
mod buffer;
mod buffer_slots;
mod call;
mod capsule;
pub(crate) mod class;
mod class_methods;
pub(crate) mod exchange;
mod guard;
mod methods;
mod numpy;
mod object;
mod object_methods;
mod parts;
mod pickle;
mod values;

pub(crate) use capsule::{KEEPER, legacy as legacy_capsule};
pub use class::{Borrow, ExportDlpack, PickleDlpack};
pub use class_methods::{dlpack_class, picklable_dlpack_class};
pub(crate) use numpy::array as numpy_array;
pub use object::TensorObject;
