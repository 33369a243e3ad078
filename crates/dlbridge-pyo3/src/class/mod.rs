//! Python classes with DLPack: `dlbridge.Tensor`, and users' classes.

mod buffer;
mod buffer_slots;
mod call;
mod index;
mod methods;
mod pickle;
pub(crate) mod table;
mod tensor;
mod traits;
mod values;

pub use methods::{dlpack_class, picklable_dlpack_class};
pub use traits::{Borrow, ExportDlpack, PickleDlpack};
pub(crate) use values::to_list;
