//! The framework of the caller's array: memory from it, and arrays of its type.

mod allocator;
mod caller_array;
mod to_caller;

pub use allocator::Allocator;
pub use caller_array::{CallerArray, Output};
