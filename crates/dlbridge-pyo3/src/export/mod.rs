//! Exports tensors to Python: capsules, NumPy arrays, columns of Arrow.

pub(crate) mod answer;
pub(crate) mod arrow;
pub(crate) mod numpy;

pub(crate) use numpy::array as numpy_array;
