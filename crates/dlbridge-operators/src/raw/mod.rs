//! Foreign interfaces: PyTorch's stable C shim, XLA's foreign function interface, NumPy's ufunc C API.
#![allow(unsafe_code)]

mod lanes;
pub(crate) mod numpy;
pub(crate) mod torch;
pub(crate) mod xla;
