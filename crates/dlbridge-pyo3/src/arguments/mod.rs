//! Tensors in the signatures of Python functions.

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
