//! Descriptors: validated, owned, written and freed. No code here accesses elements.

pub(crate) mod binding;
pub(crate) mod borrowed;
mod export;
pub(crate) mod foreign;
mod handle;
pub(crate) mod header;
pub(crate) mod keep;
mod keeper;
mod managed;
pub(crate) mod marks;
mod part;
pub(crate) mod parts;
pub(crate) mod release;
pub(crate) mod validate;

pub(crate) use handle::Handle;
pub use managed::ManagedTensor;
pub(crate) use parts::Parts;
