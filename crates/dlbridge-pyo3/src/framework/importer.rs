//! A framework's `from_dlpack`, found from one of its arrays.

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::types::{self, Framework, UNKNOWN, loaded, name_of, roots};
use crate::{Error, Result};

/// A framework's `from_dlpack`.
pub(super) struct Importer<'py> {
    pub(super) function: Bound<'py, PyAny>,
    pub(super) framework: &'static Framework,
}

impl<'py> Importer<'py> {
    /// The function that makes arrays of the type of `object`.
    pub(super) fn for_type_of(object: &Bound<'py, PyAny>) -> Result<Self> {
        let kind = object.get_type();
        let framework = types::framework_of(&kind);
        if let Some(function) = types::importer_of(&kind) {
            return Ok(Self { function, framework });
        }
        let function = find(object, &kind, framework)?;
        // Any other is not remembered: two objects may well have two namespaces.
        if !framework.has(&function) {
            return Ok(Self { function, framework: &UNKNOWN });
        }
        types::remember_importer(&kind, &function);
        Ok(Self { function, framework })
    }
}

/// `from_dlpack` of the object's namespace, else of its type, else of the package of its type.
fn find<'py>(
    object: &Bound<'py, PyAny>,
    kind: &Bound<'py, PyType>,
    framework: &Framework,
) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    let from_dlpack = intern!(py, "from_dlpack");
    if let Some(namespace) = namespace_of(object)? {
        if let Some(function) = namespace.getattr_opt(from_dlpack)? {
            return Ok(function);
        }
    }
    if let Some(function) = kind.getattr_opt(from_dlpack)? {
        return Ok(function);
    }
    for root in roots(kind) {
        let Some(mut place) = loaded(&root)? else { continue };
        if root == framework.package() {
            for name in framework.place {
                place = place.getattr(*name)?;
            }
        }
        if let Some(function) = place.getattr_opt(from_dlpack)? {
            return Ok(function);
        }
    }
    let found = name_of(kind);
    let message = format!(
        "expected an array of a framework with from_dlpack, found {found}; convert it with \
         numpy.asarray(x)"
    );
    Err(Error::Python(PyTypeError::new_err(message)))
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
