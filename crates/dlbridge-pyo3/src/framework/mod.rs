//! The framework of the caller's array: memory from it, and arrays of its type.

mod allocator;
mod importer;
mod to_caller;

pub use allocator::Allocator;
