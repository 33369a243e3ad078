//! Finds the fast import path of a type: one without a Python call.
//! Importing by that path belongs to `import`, caching it to `cache`.
//! Invariant: a table is used only for types whose methods are those of the class that publishes
//! it.

use dlbridge::protocol::table::{ATTRIBUTE, CAPSULE, HOOK, serves, usable};
use dlbridge::sys::{DLPackExchangeAPI, DLPackExchangeAPIHeader};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3::{PyTypeInfo, ffi, intern};

use super::framework::Framework;
use super::{loaded, mro_of};
use crate::TensorObject;
use crate::class::table;
use crate::ffi::numpy;
use crate::import::fallback;

/// The attributes of the protocols that are tried before the buffer protocol.
const METHOD: &str = "__dlpack__";
const CUDA_ARRAY_INTERFACE: &str = "__cuda_array_interface__";

/// How the objects of a type are imported, if not by a plain call of `__dlpack__`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path {
    /// `numpy.ndarray` itself: from the fields of its C struct.
    NumPy,
    /// `numpy.ma.MaskedArray`: by `__dlpack__`, if no element is masked.
    Masked,
    /// `dlbridge.Tensor` of this library: another handle of the tensor inside.
    Own,
    /// Through the exchange table that the type, or a base of it, publishes.
    Table(&'static DLPackExchangeAPI),
    /// By the buffer protocol, for a type that has no protocol before it: `bytes`, `memoryview`,
    /// `array.array`, arrays of ctypes. Asking for `__dlpack__` first takes four times as long.
    Buffer,
}

impl Path {
    /// The exchange table of the type.
    #[inline(always)]
    pub(crate) fn table(self) -> Option<&'static DLPackExchangeAPI> {
        match self {
            Self::NumPy | Self::Masked | Self::Buffer => None,
            Self::Own => Some(table::table::<TensorObject>()),
            Self::Table(table) => Some(table),
        }
    }
}

/// Finds the fast path of a type. Runs Python code, of the type's metaclass if it has one.
#[cold]
pub(super) fn find(kind: &Bound<'_, PyType>) -> Option<Path> {
    if numpy::is_array_type(kind) {
        return Some(Path::NumPy);
    }
    if is_masked(kind) {
        return Some(Path::Masked);
    }
    let publisher = mro_of(kind).into_iter().find(|class| own(class, ATTRIBUTE).is_some());
    let Some(publisher) = publisher else {
        return has_only_a_buffer(kind).then_some(Path::Buffer);
    };
    let publisher = publisher.cast_into::<PyType>().ok()?;
    if !goes_by_the_table_of(kind, &publisher) {
        return None;
    }
    let table = published(kind)?;
    let is_own = table::is_ours(table) && kind.is(TensorObject::type_object(kind.py()));
    Some(if is_own { Path::Own } else { Path::Table(table) })
}

/// Whether a type is that of NumPy's masked arrays, or derived from it.
fn is_masked(kind: &Bound<'_, PyType>) -> bool {
    let py = kind.py();
    let module = loaded(intern!(py, "numpy.ma")).ok().flatten();
    let masked = module.and_then(|module| module.getattr(intern!(py, "MaskedArray")).ok());
    masked.is_some_and(|masked| kind.is_subclass(&masked).unwrap_or(false))
}

/// Whether objects of a type have the buffer protocol, and cannot have an attribute of a protocol
/// that is tried before it: no class defines one, no code answers for attributes, objects have no
/// attributes of their own, and the type does not change. Of the objects of ctypes, which may have
/// attributes, none is expected to have these.
fn has_only_a_buffer(kind: &Bound<'_, PyType>) -> bool {
    const IMMUTABLE: std::ffi::c_ulong = 1 << 8;
    let py = kind.py();
    let is_plain = || -> PyResult<bool> {
        let has_attributes = kind.getattr(intern!(py, "__dictoffset__"))?.extract::<isize>()? != 0;
        // SAFETY: a type (F1).
        let flags = unsafe { ffi::PyType_GetFlags(kind.as_type_ptr()) };
        let is_of_ctypes = || PyResult::Ok(kind.get_type().module()? == "_ctypes");
        Ok((!has_attributes && flags & IMMUTABLE != 0) || is_of_ctypes()?)
    };
    // SAFETY: a type, and a slot that every version has (F1).
    let lookup = unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_getattro) };
    let names = [METHOD, CUDA_ARRAY_INTERFACE];
    // Scalars of NumPy describe some dtypes, such as dates, as bytes.
    let is_numpys = Framework::look_up(kind).has_numpys_memory;
    fallback::has_buffer(kind)
        && !is_numpys
        && lookup == ffi::PyObject_GenericGetAttr as *mut std::ffi::c_void
        && names.iter().all(|name| inherited(kind, name).is_none())
        && is_plain().unwrap_or(false)
}

/// Whether a type has the same methods as the class whose table it inherits.
fn goes_by_the_table_of(kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> bool {
    let inherits = |name| {
        Ok(match (inherited(kind, name), inherited(publisher, name)) {
            (Some(found), Some(theirs)) => found.is(&theirs),
            (None, None) => true,
            _ => false,
        })
    };
    let Ok(serves) = serves(inherits, || Ok::<_, std::convert::Infallible>(is_hook_off(kind)));
    serves
}

/// Whether a PyTorch type disables `__torch_function__`, as `torch.nn.Parameter` does.
fn is_hook_off(kind: &Bound<'_, PyType>) -> bool {
    let py = kind.py();
    let module = loaded(intern!(py, "torch._C")).ok().flatten();
    let disabled = module.and_then(|module| module.getattr("_disabled_torch_function_impl").ok());
    let found = inherited(kind, HOOK);
    found.zip(disabled).is_some_and(|(found, disabled)| found.is(&disabled))
}

/// A type's attribute as its class's dict has it, not bound to the type.
fn inherited<'py>(kind: &Bound<'py, PyType>, name: &str) -> Option<Bound<'py, PyAny>> {
    mro_of(kind).iter().find_map(|class| own(class, name))
}

/// The attribute that a class itself defines.
fn own<'py>(class: &Bound<'py, PyAny>, name: &str) -> Option<Bound<'py, PyAny>> {
    class.getattr(intern!(class.py(), "__dict__")).ok()?.get_item(name).ok()
}

/// The table in a type's attribute, if its version is supported.
fn published(kind: &Bound<'_, PyType>) -> Option<&'static DLPackExchangeAPI> {
    let capsule = kind.getattr(intern!(kind.py(), ATTRIBUTE)).ok()?;
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let header = capsule.pointer_checked(Some(CAPSULE)).ok()?;
    // SAFETY: a table that a type publishes is static, and starts with its header in every version
    // (DLPack 1.2, DLPackExchangeAPIHeader; F5, F6).
    let header = unsafe { header.cast::<DLPackExchangeAPIHeader>().as_ref() };
    // SAFETY: the same of each older table; null ends the chain (F5, F6).
    let found = usable(Some(header), |newer| unsafe { newer.prev_api.as_ref() })?;
    // SAFETY: a table of this major version has this layout (F5).
    Some(unsafe { &*std::ptr::from_ref(found).cast::<DLPackExchangeAPI>() })
}
