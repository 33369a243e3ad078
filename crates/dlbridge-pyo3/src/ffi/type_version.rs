//! The version tag of a type, which tells whether the type, or one that it is derived from, has changed.
//! Invariant: only the place of a tag that a probe has proven is read.
//!
//! The limited API has no word for it: watchers of types (3.12) are few, and a question to the type would be a lookup in
//! each import. CPython sets the tag to 0 when an attribute of the type, or of a base, is set.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};
use pyo3::{ffi, intern};

use super::class::{is_immutable, mro_of};
use crate::Result;
use crate::error::unless_refused;

/// The version of a type that does not change, or whose changes do not matter.
pub(crate) const ANY: u32 = 0;

/// Where the tag is in a type. No version but `ANY` is given out before the probe has proven it.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// The fields of a type before its tag, which are as wide as pointers (`PyTypeObject`, from `tp_name` to `tp_del`).
const FIELDS_BEFORE: usize = 45;

/// Whether a type still has the version that it had.
#[inline(always)]
pub(crate) fn is_unchanged(kind: *mut ffi::PyTypeObject, version: u32) -> bool {
    version == ANY || read(kind, OFFSET.load(Ordering::Relaxed)) == version
}

/// The number at an offset of a type, which other threads may change.
#[inline(always)]
fn read(kind: *mut ffi::PyTypeObject, offset: usize) -> u32 {
    let tag = kind.cast::<u8>().wrapping_add(offset).cast::<AtomicU32>();
    // SAFETY: inside a type, which is larger and lives as long as one of its objects (F1, F8).
    unsafe { &*tag }.load(Ordering::Relaxed)
}

/// The version of a type: `ANY` if it cannot change, or if this Python has moved the tag; `None` if Python gives this
/// type no more versions.
#[cold]
pub(crate) fn of(kind: &Bound<'_, PyType>) -> Result<Option<u32>> {
    if mro_of(kind)?.iter().all(is_immutable) {
        return Ok(Some(ANY));
    }
    static PROVEN: OnceLock<bool> = OnceLock::new();
    let is_proven = match PROVEN.get() {
        Some(is_proven) => *is_proven,
        None => {
            let found = probe(kind.py())?;
            OFFSET.store(found.unwrap_or(0), Ordering::Relaxed);
            *PROVEN.get_or_init(|| found.is_some())
        }
    };
    if is_proven { tagged(kind, OFFSET.load(Ordering::Relaxed)) } else { Ok(Some(ANY)) }
}

/// The tag of a type, which CPython gives it when one of its attributes is looked up; `None` if it gives none.
fn tagged(kind: &Bound<'_, PyType>, offset: usize) -> Result<Option<u32>> {
    let py = kind.py();
    // No class has this name, so the lookup finds no code to run.
    let lookup = py.get_type::<PyType>().getattr(intern!(py, "__getattribute__"))?;
    let name = intern!(py, "version of dlbridge");
    unless_refused(py, lookup.call1((kind, name)))?;
    Ok(Some(read(kind.as_type_ptr(), offset)).filter(|&tag| tag != ANY))
}

/// Where the tag is: the number there appears at a lookup, and goes when an attribute of the base is set.
fn probe(py: Python<'_>) -> Result<Option<usize>> {
    let object = py.get_type::<PyAny>();
    // Before the first field of a type stands the head of an object with a size.
    let head = object.getattr(intern!(py, "__basicsize__"))?.extract::<usize>()?;
    let offset = head + size_of::<ffi::Py_ssize_t>() + FIELDS_BEFORE * size_of::<usize>();
    let base = derived(&object)?;
    let class = derived(&base)?;
    let mut tags = Vec::new();
    for value in 0..3 {
        let Some(tag) = tagged(&class, offset)? else { return Ok(None) };
        base.setattr(intern!(py, "changed"), value)?;
        if tags.contains(&tag) || read(class.as_type_ptr(), offset) == tag {
            return Ok(None);
        }
        tags.push(tag);
    }
    Ok(Some(offset))
}

fn derived<'py>(base: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyType>> {
    let py = base.py();
    let class = py.get_type::<PyType>().call1(("probe", (base,), PyDict::new(py)))?;
    Ok(class.cast_into()?)
}
