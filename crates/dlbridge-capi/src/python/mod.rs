//! The Python protocol for import and export, without linking Python: its functions are found at
//! run time.
//! Invariant: a [`Python`](attached::Python) exists only on threads that are attached to the interpreter.

mod absent;
mod answer;
mod api;
mod attached;
mod capsule;
mod class;
mod constants;
mod ending;
mod exception;
mod exchange;
mod import;
mod object;
#[cfg(any(unix, windows))]
mod process;
mod release;
mod table;

pub use api::PyObject;
pub(crate) use api::load_from;
pub(crate) use capsule::new as capsule;
pub(crate) use class::new as object;
pub(crate) use import::import;
pub(crate) use release::{attached, drain, release, undisturbed};
