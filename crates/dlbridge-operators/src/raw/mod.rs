//! Foreign things: tensors of a call, PyTorch's stable C shim, XLA's foreign function interface.
//! The only room of this crate with unsafe code.
#![allow(unsafe_code)]

pub(crate) mod operand;
pub(crate) mod torch;
pub(crate) mod xla;
