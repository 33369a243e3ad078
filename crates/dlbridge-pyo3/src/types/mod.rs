//! Facts about Python types: their fast import path, and their framework.

mod cache;
mod framework;
mod path;

use pyo3::prelude::*;
use pyo3::types::PyType;

pub(crate) use cache::{framework_of, importer_of, path_of, remember_importer, table_of};
pub(crate) use framework::{Framework, UNKNOWN, roots};
pub(crate) use path::Path;

pub(crate) use crate::ffi::class::mro_of;
pub(crate) use crate::interpreter::imported_module as loaded;

/// A type's name with its module, if it has one.
pub(crate) fn name_of(kind: &Bound<'_, PyType>) -> String {
    let name = kind.fully_qualified_name().or_else(|_| kind.qualname());
    name.map_or_else(|_| "this type".to_owned(), |name| name.to_string())
}
