//! Foreign interfaces: tensors of a call, PyTorch's stable C shim, XLA's foreign function interface, NumPy's ufunc C API.
//! The only room of this crate with unsafe code.
#![allow(unsafe_code)]

pub(crate) mod attach;
pub(crate) mod device_call;
mod lanes;
pub(crate) mod numpy;
pub(crate) mod operand;
pub(crate) mod rows;
pub(crate) mod stream;
pub(crate) mod torch;
pub(crate) mod xla;
