//! DLPack's C exchange API: tensors between extensions without a Python call.
//! `__dlpack__` and capsules of tensors do not belong here (see `import`, `capsule`).
//! Invariant: a table is used only for objects of the very type that it was found on.

mod export;
mod import;
mod table;

pub(crate) use export::capsule;
pub(crate) use import::{failure, import};
pub(crate) use table::table_of;
