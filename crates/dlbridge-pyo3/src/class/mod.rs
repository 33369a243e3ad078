//! Python classes with DLPack: `dlbridge.Tensor`, and users' classes.

mod call;
mod index;
mod methods;
mod pickle;
mod table;
mod tensor;
mod traits;
mod values;

pub use methods::dlpack_class;
pub use pickle::Pickle;
pub use traits::ExportDlpack;
