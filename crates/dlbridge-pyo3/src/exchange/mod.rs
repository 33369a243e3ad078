//! DLPack's C exchange API: tensors between extensions without a Python call.
//! `__dlpack__` and capsules of tensors do not belong here (see `import`, `capsule`).
//! Invariant: a table is used only for objects of the types that it was found for.

mod allocate;
mod export;
mod give;
mod import;
mod refusals;
mod remembered;
mod table;

pub(crate) use allocate::allocate;
pub(crate) use export::{capsule, is_ours};
pub(crate) use give::give;
pub(crate) use import::{describe, import};
pub(crate) use refusals::failure;
pub(crate) use remembered::way_of;
pub(crate) use table::{Way, table_of};
