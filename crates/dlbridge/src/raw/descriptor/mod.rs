//! Plain descriptors: validated, checked, borrowed. No code here accesses elements or owns memory.

pub(crate) mod borrowed;
pub(crate) mod checked;
mod part;
pub(crate) mod validate;

pub(crate) use checked::Checked;
