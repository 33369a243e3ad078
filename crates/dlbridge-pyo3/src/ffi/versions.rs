//! What differs between the versions of PyO3 that this crate compiles with, 0.27 to 0.30.
//! `cargo xtask test pyo3` runs the tests with the oldest and with one between.

use pyo3::PyTypeInfo;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Locks an object on a Python without the GIL while `work` runs; elsewhere the GIL does that.
#[inline]
pub(crate) fn with_critical_section<R>(object: &Bound<'_, PyAny>, work: impl FnOnce() -> R) -> R {
    // From 0.28 on this imports a module `critical_section`, which hides the one below.
    #[allow(unused_imports, reason = "0.27 has no such module")]
    use pyo3::sync::*;
    critical_section::with_critical_section(object, work)
}

/// The path of 0.28 for 0.27, where the function stands in `pyo3::sync`.
#[allow(
    dead_code,
    deprecated,
    unconditional_recursion,
    clippy::only_used_in_recursion,
    reason = "hidden from 0.28 on"
)]
mod critical_section {
    use pyo3::prelude::*;

    pub(super) fn with_critical_section<R>(
        object: &Bound<'_, PyAny>,
        work: impl FnOnce() -> R,
    ) -> R {
        #[allow(unused_imports, reason = "later versions do not have it")]
        use pyo3::sync::*;
        with_critical_section(object, work)
    }
}

/// The name of a class, for messages. PyO3's own constants for it changed from version to version.
#[cold]
pub(crate) fn class_name<T: PyTypeInfo>(py: Python<'_>) -> String {
    class_name_of(&py.get_type::<T>())
}

/// Compiled once, not for each class.
fn class_name_of(class: &Bound<'_, PyType>) -> String {
    let name = class.name();
    name.map_or_else(|_| "this class".to_owned(), |name| name.to_string())
}
