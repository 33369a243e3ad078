//! What an extension says of an object that it does not import, because a feature is off: `cuda` has CUDA's array interface,
//! `columns` Arrow's.

use dlbridge::Tensor;
use pyo3::prelude::*;
use pyo3::types::PyString;
use pyo3::{Borrowed, intern};

use super::{Protocol, advice};
use crate::interpreter::Attributes;
use crate::{Error, Result};

/// The error for an object that has one of these attributes. NumPy does not convert the object: it would make numbers of
/// nulls.
fn refusal(
    object: Borrowed<'_, '_, PyAny>,
    names: &[&Bound<'_, PyString>],
    feature: &str,
) -> Result<Option<Error>> {
    for &name in names {
        if object.attribute_opt(name)?.is_some() {
            let why = format!(
                ", whose {name} an extension reads by the feature `{feature}` of dlbridge-pyo3"
            );
            return Ok(Some(advice::refused(object, &why).into()));
        }
    }
    Ok(None)
}

#[cfg(not(feature = "cuda"))]
pub(super) mod cuda {
    use super::*;
    use crate::stream::Stream;

    /// The error for an object with CUDA's array interface; `None` for another object.
    pub(in crate::import) fn import(
        object: Borrowed<'_, '_, PyAny>,
        _: Stream,
    ) -> Result<Option<(Tensor, Protocol)>> {
        let name = intern!(object.py(), "__cuda_array_interface__");
        refusal(object, &[name], "cuda")?.map_or(Ok(None), Err)
    }
}

#[cfg(not(feature = "columns"))]
pub(super) mod columns {
    use super::*;

    fn refused(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Error>> {
        let py = object.py();
        let names = [intern!(py, "__arrow_c_array__"), intern!(py, "__arrow_c_stream__")];
        refusal(object, &names, "columns")
    }

    /// The error for an object with columns; `None` for another object.
    pub(in crate::import) fn import(
        object: Borrowed<'_, '_, PyAny>,
    ) -> Result<Option<(Tensor, Protocol)>> {
        refused(object)?.map_or(Ok(None), Err)
    }

    pub(in crate::import) fn copy_chunks(
        _: Borrowed<'_, '_, PyAny>,
    ) -> Result<Option<(Tensor, Protocol)>> {
        Ok(None)
    }

    /// The exception that the `__dlpack__` of an object raised, or the error for columns, with that exception as its cause.
    #[cold]
    pub(in crate::import) fn import_column(
        object: Borrowed<'_, '_, PyAny>,
        exception: PyErr,
    ) -> Result<(Tensor, Protocol)> {
        match refused(object)? {
            Some(error) => Err(error.caused_by(object.py(), exception)),
            None => Err(exception.into()),
        }
    }
}
