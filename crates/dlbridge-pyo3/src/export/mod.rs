//! Exports tensors to Python: capsules and NumPy arrays.

pub(crate) mod answer;
pub(crate) mod numpy;

pub(crate) use numpy::array as numpy_array;
