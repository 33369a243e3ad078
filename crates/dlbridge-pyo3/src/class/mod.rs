//! Python classes with DLPack: `dlbridge.Tensor`, and users' classes.

mod call;
#[cfg(feature = "tensor-methods")]
mod index;
#[cfg(any(feature = "cuda", feature = "tensor-methods"))]
mod interface;
mod methods;
mod pickle;
mod tensor;
mod traits;
#[cfg(feature = "tensor-methods")]
mod values;
#[cfg(feature = "tensor-methods")]
mod whole;

pub use methods::dlpack_class;
pub use pickle::Pickle;
pub use traits::ExportDlpack;
