//! The table that all extension modules of the process share, by a capsule in `sys`.
//! Invariant: a capsule of this name has a `Table` that lives as long as the process (F6).

use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;

use pyo3::prelude::*;
use pyo3::{ffi, intern};

use super::table::Table;
use crate::ffi::interpreter::attached;

/// The name says the layout of `Table`: another layout needs another number.
const NAME: &CStr = c"dlbridge.borrows.1";

/// The table of this extension module, which is used if no other module was first.
static OWN: Table = Table::new();

/// The table of the process.
static SHARED: OnceLock<&'static Table> = OnceLock::new();

#[inline]
pub(super) fn table() -> &'static Table {
    match SHARED.get() {
        Some(table) => table,
        None => first_table(),
    }
}

#[cold]
fn first_table() -> &'static Table {
    // Before the lock of `SHARED` is held, since Python code runs. A thread without the interpreter
    // cannot ask for the table of other modules.
    let found = attached().and_then(|py| shared(py).ok());
    SHARED.get_or_init(|| found.unwrap_or(&OWN))
}

/// The table of the first extension module that asked.
fn shared(py: Python<'_>) -> PyResult<&'static Table> {
    // SAFETY: a pointer that is not null to a static table, a static name, and nothing to release (F2).
    let own =
        unsafe { ffi::PyCapsule_New(ptr::from_ref(&OWN).cast_mut().cast(), NAME.as_ptr(), None) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let own = unsafe { Bound::from_owned_ptr_or_err(py, own) }?;
    let names = py.import(intern!(py, "sys"))?.dict();
    let found =
        names.call_method1(intern!(py, "setdefault"), (intern!(py, "_dlbridge_borrows_1"), own))?;
    // SAFETY: attached; the function checks the type and the name (F1, F4).
    let table = unsafe { ffi::PyCapsule_GetPointer(found.as_ptr(), NAME.as_ptr()) };
    if table.is_null() {
        return Err(PyErr::fetch(py));
    }
    // SAFETY: a table of this layout, static in the module that made the capsule, which is never
    // unloaded (F6).
    Ok(unsafe { &*table.cast::<Table>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_module_gives_its_table_to_all_others() {
        Python::attach(|py| {
            let first = shared(py).expect("a table");
            assert!(ptr::eq(first, shared(py).expect("the same")));
            // A module that is loaded afterwards.
            let names = py.import("sys").expect("sys").dict();
            let capsule = names.get_item("_dlbridge_borrows_1").expect("a dict").expect("set");
            // SAFETY: attached; the function checks the type and the name (F1, F4).
            let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
            assert!(ptr::eq(table.cast::<Table>(), first));
            // Something else under the name is no table; each module then has its own.
            names.set_item("_dlbridge_borrows_1", 1).expect("a dict");
            assert!(shared(py).is_err());
            names.set_item("_dlbridge_borrows_1", capsule).expect("a dict");
        });
    }
}
