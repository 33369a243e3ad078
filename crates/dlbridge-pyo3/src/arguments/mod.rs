//! Tensors in the signatures of Python functions.

/// The types that generated stubs name: those of the Python package `dlbridge`.
#[cfg(type_hints)]
pub(crate) mod hints {
    use pyo3::inspect::{PyStaticExpr, PyStaticOperator};
    use pyo3::type_hint_identifier;

    const BUFFER: PyStaticExpr = type_hint_identifier!("typing_extensions", "Buffer");
    const DLPACK: PyStaticExpr = type_hint_identifier!("dlbridge", "SupportsDLPack");
    /// What [`PyTensor`](super::PyTensor) accepts.
    pub(crate) const ARRAY: PyStaticExpr =
        PyStaticExpr::BinOp { left: &DLPACK, op: PyStaticOperator::BitOr, right: &BUFFER };
    /// What [`PyTensorLike`](super::PyTensorLike) accepts.
    pub(crate) const LIKE: PyStaticExpr = type_hint_identifier!("numpy.typing", "ArrayLike");
    /// What a [`PyTensor`](super::PyTensor) becomes.
    pub(crate) const TENSOR: PyStaticExpr = type_hint_identifier!("dlbridge", "Tensor");
}

mod like;
mod shape;
mod stable;
mod tensor;
mod typed;

pub use like::PyTensorLike;
#[doc(hidden)]
pub use shape::shapes;
pub use tensor::PyTensor;
pub use typed::{
    ANY_RANK, ColumnMajor, Constraint, Contiguous, NoGrad, PyTensorMut, PyTensorOf, Writable,
};
