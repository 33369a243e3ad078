//! Facts about Python types: their fast import path, and their framework.

mod cache;
mod framework;
mod path;

use pyo3::prelude::*;
use pyo3::types::PyType;

pub(crate) use cache::{framework_of, importer_of, path_of, remember_importer, table_of};
pub(crate) use framework::{Framework, UNKNOWN, roots};
pub(crate) use path::Path;

use crate::ffi::class::names_of;
pub(crate) use crate::interpreter::imported_module as loaded;

/// A type's name with its module, if it has one.
pub(crate) fn name_of(kind: &Bound<'_, PyType>) -> String {
    match names_of(kind) {
        Ok(Some([module, name]))
            if matches!(&*module.to_string_lossy(), "builtins" | "__main__") =>
        {
            name.to_string_lossy().into_owned()
        }
        Ok(Some([module, name])) => {
            format!("{}.{}", module.to_string_lossy(), name.to_string_lossy())
        }
        Ok(None) | Err(_) => "this type".to_owned(),
    }
}
