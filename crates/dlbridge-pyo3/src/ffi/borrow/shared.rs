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
const NAME: &CStr = c"dlbridge.borrows.3";

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
    SHARED.get_or_init(|| {
        #[cfg(unix)]
        forks::free_the_lock();
        found.unwrap_or(&OWN)
    })
}

/// The child of a fork has one thread, which does not hold the lock: it forks nowhere under it.
#[cfg(unix)]
mod forks {
    use std::ffi::c_int;

    type Handler = Option<unsafe extern "C" fn()>;

    unsafe extern "C" {
        /// POSIX, as `pthread.h` declares it.
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    /// Frees the table's lock in every child, where the thread that held it does not exist.
    pub(super) fn free_the_lock() {
        // SAFETY: a function that stays loaded; without memory for it, forks go on (F5).
        let _ = unsafe { pthread_atfork(None, None, Some(child)) };
    }

    unsafe extern "C" fn child() {
        if let Some(table) = super::SHARED.get() {
            table.free_the_lock();
        }
    }
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
        names.call_method1(intern!(py, "setdefault"), (intern!(py, "_dlbridge_borrows_3"), own))?;
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

    #[cfg(unix)]
    #[test]
    fn the_child_of_a_fork_has_a_free_lock() {
        use std::ffi::{c_int, c_uint};

        unsafe extern "C" {
            safe fn fork() -> c_int;
            safe fn alarm(seconds: c_uint) -> c_uint;
            safe fn _exit(status: c_int) -> !;
            safe fn waitpid(process: c_int, status: &mut c_int, options: c_int) -> c_int;
        }
        let table = table();
        let child = table.locked(|| {
            let child = fork();
            if child == 0 {
                alarm(20);
                table.locked(|| ());
                _exit(0);
            }
            child
        });
        let mut status = -1;
        waitpid(child, &mut status, 0);
        assert_eq!(status, 0, "ended by a signal: the lock was held");
    }

    #[test]
    fn the_first_module_gives_its_table_to_all_others() {
        Python::attach(|py| {
            let first = shared(py).expect("a table");
            assert!(ptr::eq(first, shared(py).expect("the same")));
            // A module that is loaded afterwards.
            let names = py.import("sys").expect("sys").dict();
            let capsule = names.get_item("_dlbridge_borrows_3").expect("a dict").expect("set");
            // SAFETY: attached; the function checks the type and the name (F1, F4).
            let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()) };
            assert!(ptr::eq(table.cast::<Table>(), first));
            // Something else under the name is no table; each module then has its own.
            names.set_item("_dlbridge_borrows_3", 1).expect("a dict");
            assert!(shared(py).is_err());
            names.set_item("_dlbridge_borrows_3", capsule).expect("a dict");
        });
    }
}
