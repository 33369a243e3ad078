//! Which types have a fast import path: one without a Python call.
//! Taking that path belongs to `import` and `numpy`, remembering it to `remembered`.
//! Invariant: a table is used for the types that do what the class which publishes it does.

use std::ffi::CStr;
use std::ptr;

use dlbridge::sys::{
    DLPACK_MAJOR_VERSION, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3::{Borrowed, intern};

use super::remembered::way_of;
use crate::frameworks::loaded;
use crate::numpy;

/// The name of the capsule that a type's attribute holds.
pub(crate) const CAPSULE_NAME: &CStr = c"dlpack_exchange_api";

/// The name of that attribute.
pub(crate) const ATTRIBUTE: &str = "__dlpack_c_exchange_api__";

/// A fast path into the objects of a type.
#[derive(Clone, Copy)]
pub(crate) struct Way {
    /// The exchange table that the type publishes. For NumPy's own array type, which publishes none,
    /// one without functions: tables need not be told from it before they are called.
    pub(crate) table: &'static DLPackExchangeAPI,
}

impl Way {
    pub(super) const NUMPY: Self = Self { table: &NO_FUNCTIONS.0 };

    /// Whether the type is NumPy's own array type.
    pub(crate) fn is_numpy(self) -> bool {
        ptr::eq(self.table, Self::NUMPY.table)
    }
}

/// A table that may be shared between threads: its fields never change.
pub(super) struct Table(pub(super) DLPackExchangeAPI);

// SAFETY: immutable, and its functions may be called from any attached thread (F6).
unsafe impl Sync for Table {}

static NO_FUNCTIONS: Table = Table(DLPackExchangeAPI {
    header: DLPackExchangeAPIHeader { version: DLPackVersion::CURRENT, prev_api: ptr::null_mut() },
    managed_tensor_allocator: None,
    managed_tensor_from_py_object_no_sync: None,
    managed_tensor_to_py_object_no_sync: None,
    dltensor_from_py_object_no_sync: None,
    current_work_stream: None,
});

/// The fast path that a type has. Runs Python code, of the type's metaclass if it has one.
#[cold]
pub(super) fn find(kind: &Bound<'_, PyType>) -> Option<Way> {
    if numpy::is_array_type(kind) {
        return Some(Way::NUMPY);
    }
    let publisher = kind.mro().iter().find(|class| own(class, ATTRIBUTE).is_some())?;
    let publisher = publisher.cast_into::<PyType>().ok()?;
    if !goes_by_the_table_of(kind, &publisher) {
        return None;
    }
    published(kind).map(|table| Way { table })
}

/// Whether a type does nothing else than the class whose table it inherits: has the same
/// `__dlpack__`, or none, and no method that comes before it. What a single object has
/// of its own does not count, as with Python's own special methods.
fn goes_by_the_table_of(kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> bool {
    let inherits = |name| match (inherited(kind, name), inherited(publisher, name)) {
        (Some(found), Some(theirs)) => found.is(&theirs),
        (None, None) => true,
        _ => false,
    };
    inherits("__dlpack__")
        && inherits("__getattribute__")
        && (inherits("__torch_function__") || refuses_nothing(kind))
}

/// Whether a type of PyTorch has switched `__torch_function__` off, as `torch.nn.Parameter` has.
fn refuses_nothing(kind: &Bound<'_, PyType>) -> bool {
    let py = kind.py();
    let module = loaded(intern!(py, "torch._C")).ok().flatten();
    let disabled = module.and_then(|module| module.getattr("_disabled_torch_function_impl").ok());
    let found = inherited(kind, "__torch_function__");
    found.zip(disabled).is_some_and(|(found, disabled)| found.is(&disabled))
}

/// A type's attribute as its class's dict has it, not bound to the type.
fn inherited<'py>(kind: &Bound<'py, PyType>, name: &str) -> Option<Bound<'py, PyAny>> {
    kind.mro().iter().find_map(|class| own(&class, name))
}

/// The attribute that a class itself defines.
fn own<'py>(class: &Bound<'py, PyAny>, name: &str) -> Option<Bound<'py, PyAny>> {
    class.getattr(intern!(class.py(), "__dict__")).ok()?.get_item(name).ok()
}

/// The table that a type's attribute holds, in a version that we can call.
fn published(kind: &Bound<'_, PyType>) -> Option<&'static DLPackExchangeAPI> {
    let capsule = kind.getattr(intern!(kind.py(), ATTRIBUTE)).ok()?;
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let header = capsule.pointer_checked(Some(CAPSULE_NAME)).ok()?;
    usable(header.as_ptr().cast())
}

/// The exchange table of an object's type.
pub(crate) fn table_of(object: Borrowed<'_, '_, PyAny>) -> Option<&'static DLPackExchangeAPI> {
    way_of(object).filter(|way| !way.is_numpy()).map(|way| way.table)
}

/// How many tables of a chain are looked at: one that runs in a circle has no end.
const MOST_TABLES: usize = 16;

/// The newest table of our major version in the chain of older ones.
fn usable(mut header: *mut DLPackExchangeAPIHeader) -> Option<&'static DLPackExchangeAPI> {
    for _ in 0..MOST_TABLES {
        // SAFETY: a table that a type publishes is static, and starts with its header in every
        // version (DLPack 1.2, DLPackExchangeAPIHeader); null ends the chain (F5, F6).
        let found = unsafe { header.as_ref() }?;
        if found.version.major == DLPACK_MAJOR_VERSION {
            // SAFETY: a table of this major version has this layout (F5).
            return Some(unsafe { &*header.cast::<DLPackExchangeAPI>() });
        }
        header = found.prev_api;
    }
    None
}
