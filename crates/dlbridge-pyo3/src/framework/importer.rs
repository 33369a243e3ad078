//! A framework's `from_dlpack`, found from one of its arrays.

use pyo3::exceptions::PyAttributeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::Result;
use crate::types::{self, Framework, UNKNOWN, loaded, roots};

/// A framework's `from_dlpack`.
pub(super) struct Importer<'py> {
    pub(super) function: Bound<'py, PyAny>,
    pub(super) framework: &'static Framework,
}

impl<'py> Importer<'py> {
    /// The function that makes arrays of the type of `object`; `None` for an object that is not an array
    /// of a framework with `from_dlpack`.
    pub(super) fn for_type_of(object: &Bound<'py, PyAny>) -> Result<Option<Self>> {
        let kind = object.get_type();
        let framework = types::framework_of(&kind)?;
        if let Some(function) = types::importer_of(&kind) {
            return Ok(Some(Self { function, framework }));
        }
        let Some(function) = find(object, &kind, framework)? else { return Ok(None) };
        // Any other is not remembered: two objects may well have two namespaces.
        if !framework.has(&function)? {
            return Ok(Some(Self { function, framework: &UNKNOWN }));
        }
        types::remember_importer(&kind, &function);
        Ok(Some(Self { function, framework }))
    }
}

/// `from_dlpack` of the object's namespace, else of its type, else of the package of its type.
fn find<'py>(
    object: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
    framework: &Framework,
) -> Result<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let from_dlpack = intern!(py, "from_dlpack");
    if let Some(namespace) = namespace_of(object)? {
        if let Some(function) = namespace.getattr_opt(from_dlpack)? {
            return Ok(Some(function));
        }
    }
    if let Some(function) = kind.getattr_opt(from_dlpack)? {
        return Ok(Some(function));
    }
    for root in roots(kind)? {
        let Some(mut place) = loaded(&root)? else { continue };
        if root == framework.package() {
            for name in framework.place {
                place = place.getattr(*name)?;
            }
        }
        if let Some(function) = place.getattr_opt(from_dlpack)? {
            return Ok(Some(function));
        }
    }
    Ok(None)
}

/// The array API namespace of an object, if it has one.
pub(super) fn namespace_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    match object.call_method0(intern!(py, "__array_namespace__")) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
