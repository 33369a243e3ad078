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
    AnyContiguous, ColumnMajor, Constraint, Contiguous, Metadata, NoGrad, ToWrite, Writable,
};
pub use like::PyTensorLike;
pub use stable::ArrayOf;
pub use tensor::{IntoTensor, PyTensor};
pub use typed::{ANY_NDIM, KeepsCaller, PyTensorMut, PyTensorOf};

use std::fmt::Write;

use dlbridge::{DType, Tensor};
use pyo3::exceptions::PyTypeError;

use crate::Error;
use crate::error::{Conversion, RESULT_IN_COPY, error_of};

/// What a [`PyTensorOf`] requires, so that the message is compiled once and not for each type.
struct Wanted {
    dtype: DType,
    ndim: usize,
    shape: Option<&'static [i64]>,
    writable: bool,
    name: fn(&mut String),
    help: fn(Metadata<'_>) -> &'static str,
}

impl Wanted {
    fn refusal(&self, tensor: &Tensor) -> Error {
        // One text, written in turn: each `format!` of a part is code of its own.
        let mut text = format!("expected {}[", self.dtype);
        let ndim = if self.ndim == ANY_NDIM { 0 } else { self.ndim };
        for axis in 0..self.shape.map_or(ndim, <[i64]>::len) {
            if axis > 0 {
                text.push_str(", ");
            }
            match self.shape.map_or(-1, |shape| shape[axis]) {
                -1 => text.push('?'),
                extent => _ = write!(text, "{extent}"),
            }
        }
        if self.shape.is_none() && self.ndim == ANY_NDIM {
            text.push_str("...");
        }
        text.push_str("] on the host");
        (self.name)(&mut text);
        let (dtype, shape, device) = (tensor.dtype(), tensor.shape(), tensor.device());
        let _ = write!(text, ", found {dtype}{shape:?} on {device}");
        if !tensor.is_contiguous() {
            let _ = write!(text, ", strides {:?}", tensor.strides());
        }
        // A function that only reads need not know.
        if self.writable && tensor.is_legacy_read_only() {
            text.push_str(", read-only, as legacy capsules and arrays of JAX are");
        } else if self.writable && tensor.is_read_only() {
            text.push_str(", read-only");
        }
        if self.writable && Metadata::of(tensor).may_overlap() {
            text.push_str(", elements that may overlap");
        }
        let help = self.help(tensor);
        if !help.is_empty() {
            let _ = write!(text, "; pass {help}{}", self.result_in_copy(tensor));
        }
        Error::from(error_of::<PyTypeError>(text))
    }

    /// Where the result is, unless what helps is a view of the same memory.
    fn result_in_copy(&self, tensor: &Tensor) -> &'static str {
        let is_view = tensor.dtype() == self.dtype
            && tensor.is_contiguous()
            && self.ndim != ANY_NDIM
            && self.ndim != tensor.ndim();
        if self.writable && !is_view { RESULT_IN_COPY } else { "" }
    }

    /// What to pass in place of the tensor.
    fn help(&self, tensor: &Tensor) -> String {
        if !tensor.device().is_host_accessible() {
            return "a copy on the host, from_dlpack(x, device=\"cpu\")".to_owned();
        }
        if tensor.dtype() != self.dtype {
            let conversion = Conversion { from: tensor.dtype(), to: self.dtype };
            let (numpy, torch) = (conversion.numpy(self.writable), conversion.torch());
            return format!("{numpy}, in PyTorch {torch}{}", conversion.loss());
        }
        if self.ndim != ANY_NDIM && tensor.ndim() != self.ndim {
            let axes = if self.ndim == 1 { "axis" } else { "axes" };
            return format!("x.reshape(...) with {} {axes}", self.ndim);
        }
        (self.help)(Metadata::of(tensor)).to_owned()
    }
}
