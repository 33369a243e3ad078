//! What a dtype is called: by NumPy's numbers and type strings, in buffers, in Arrow, and in Python code.

#[cfg(feature = "columns")]
pub(crate) mod arrow;
pub(crate) mod buffer;
pub(crate) mod names;
pub(crate) mod numpy;
