//! Tensors in the signatures of Python functions.

mod in_place;
mod like;
mod shape;
mod tensor;
mod typed;

pub use in_place::PyViewMut;
pub use like::PyTensorLike;
#[doc(hidden)]
pub use shape::shapes;
pub use tensor::PyTensor;
pub use typed::{ANY_RANK, ColumnMajor, Constraint, Contiguous, PyTensorMut, PyTensorOf, Writable};
