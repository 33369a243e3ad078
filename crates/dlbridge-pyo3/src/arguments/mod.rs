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

mod constraint;
mod like;
mod stable;
mod tensor;
mod typed;

#[doc(hidden)]
pub use constraint::shapes;
pub use constraint::{
    AnyContiguous, ColumnMajor, Constraint, Contiguous, Metadata, NoGrad, Writable,
};
pub use like::PyTensorLike;
pub use stable::ArrayOf;
pub use tensor::{IntoTensor, PyTensor};
pub use typed::{ANY_RANK, PyTensorMut, PyTensorOf};

use std::fmt::Write;

use dlbridge::{DType, Tensor};
use pyo3::exceptions::PyTypeError;

use crate::Error;
use crate::error::RESULT_IN_COPY;
use crate::error::error_of;

/// What a [`PyTensorOf`] requires, so that the message is compiled once and not for each type.
struct Wanted {
    dtype: DType,
    rank: usize,
    shape: Option<&'static [i64]>,
    writable: bool,
    name: fn(&mut String),
    help: fn(Metadata<'_>) -> &'static str,
}

impl Wanted {
    fn refusal(&self, tensor: &Tensor) -> Error {
        let mut wanted = self.dtype.to_string();
        let extent = |fixed: &i64| match fixed {
            -1 => "?".to_owned(),
            fixed => fixed.to_string(),
        };
        let extents = match (self.shape, self.rank) {
            (Some(shape), _) => shape.iter().map(extent).collect::<Vec<_>>().join(", "),
            (None, ANY_RANK) => "...".to_owned(),
            (None, rank) => vec!["?"; rank].join(", "),
        };
        let _ = write!(wanted, "[{extents}]");
        wanted.push_str(" on the host");
        (self.name)(&mut wanted);
        let (dtype, shape, device) = (tensor.dtype(), tensor.shape(), tensor.device());
        let mut found = format!("{dtype}{shape:?} on {device}");
        if !tensor.is_contiguous() {
            let _ = write!(found, ", strides {:?}", tensor.strides());
        }
        // A function that only reads need not know.
        if self.writable && tensor.is_legacy_read_only() {
            found.push_str(", read-only, as legacy capsules and arrays of JAX are");
        } else if self.writable && tensor.is_read_only() {
            found.push_str(", read-only");
        }
        if self.writable && Metadata::of(tensor).may_overlap() {
            found.push_str(", elements that may overlap");
        }
        let help = match self.help(tensor) {
            help if help.is_empty() => String::new(),
            help => format!("; pass {help}{}", self.result_in_copy(tensor)),
        };
        Error::from(error_of::<PyTypeError>(format!("expected {wanted}, found {found}{help}")))
    }

    /// Where the result is, unless what helps is a view of the same memory.
    fn result_in_copy(&self, tensor: &Tensor) -> &'static str {
        let is_view = tensor.dtype() == self.dtype
            && tensor.is_contiguous()
            && self.rank != ANY_RANK
            && self.rank != tensor.rank();
        if self.writable && !is_view { RESULT_IN_COPY } else { "" }
    }

    /// What to pass in place of the tensor.
    fn help(&self, tensor: &Tensor) -> String {
        if !tensor.device().is_host_accessible() {
            return "a copy on the host, from_dlpack(x, device=\"cpu\")".to_owned();
        }
        if tensor.dtype() != self.dtype {
            return format!("x.astype(\"{}\"), in PyTorch x.to(torch.{0})", self.dtype);
        }
        if self.rank != ANY_RANK && tensor.rank() != self.rank {
            let axes = if self.rank == 1 { "axis" } else { "axes" };
            return format!("x.reshape(...) with {} {axes}", self.rank);
        }
        (self.help)(Metadata::of(tensor)).to_owned()
    }
}
