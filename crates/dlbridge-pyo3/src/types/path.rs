//! Finds the fast import path of a type: one without a Python call.
//! Importing by that path belongs to `import`, caching it to `cache`.
//! Invariant: a table is used only for types whose methods are those of the class that publishes
//! it.

use dlbridge::protocol::table::{ATTRIBUTE, DISPATCH, HOOK, serves};
use dlbridge::sys::DLPackExchangeAPI;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTypeInfo, intern};

use super::framework::Framework;
use super::{loaded, mro_of};
use crate::TensorObject;
use crate::ffi::buffer;
use crate::ffi::class::{is_immutable, looks_up_plainly};
use crate::ffi::numpy::{self, Array};
use crate::ffi::published::{self, Published};
use crate::ffi::torch;

/// The attributes of the protocols that are tried before the buffer protocol.
const METHOD: &str = "__dlpack__";
const CUDA_ARRAY_INTERFACE: &str = "__cuda_array_interface__";

/// How an object is imported, if not by a plain call of `__dlpack__`.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a, 'py> {
    /// `numpy.ndarray` itself: from the fields of its C struct.
    NumPy(Array<'a, 'py>),
    /// `numpy.ma.MaskedArray`: by `__dlpack__`, if no element is masked.
    Masked,
    /// A class derived from `torch.Tensor` with a hook of its own, which may have no memory: by
    /// `__dlpack__`, if its memory holds its values.
    TorchSubclass,
    /// `dlbridge.Tensor` of this library: another handle of the tensor inside.
    Own(Published<'a, 'py>),
    /// Through the exchange table that the type, or a base of it, publishes.
    Table(Published<'a, 'py>),
    /// By the buffer protocol, for a type that has no protocol before it: `bytes`, `memoryview`,
    /// `array.array`, arrays of ctypes. Asking for `__dlpack__` first takes four times as long.
    Buffer,
}

/// The [`Path`] of all objects of a type.
#[derive(Clone, Copy, Debug)]
pub(super) enum TypePath {
    NumPy,
    Masked,
    TorchSubclass,
    Own,
    Table(&'static DLPackExchangeAPI),
    Buffer,
}

/// Finds the fast path of a type. Runs Python code, of the type's metaclass if it has one.
#[cold]
pub(super) fn find(kind: &Bound<'_, PyType>) -> Option<TypePath> {
    if numpy::is_array_type(kind) {
        return Some(TypePath::NumPy);
    }
    if is_masked(kind) {
        return Some(TypePath::Masked);
    }
    let publisher = mro_of(kind).into_iter().find(|class| own(class, ATTRIBUTE).is_some());
    let Some(publisher) = publisher else {
        return has_only_a_buffer(kind).then_some(TypePath::Buffer);
    };
    let publisher = publisher.cast_into::<PyType>().ok()?;
    let goes_by_the_table = goes_by_the_table_of(kind, &publisher);
    let table = published::find(kind)?;
    let is_torch = torch::prepare(&publisher, table);
    if is_torch && !(goes_by_the_table && has_same(DISPATCH, kind, &publisher)) {
        return has_same(METHOD, kind, &publisher).then_some(TypePath::TorchSubclass);
    }
    if !goes_by_the_table {
        return None;
    }
    let is_own = kind.is(TensorObject::type_object(kind.py()));
    Some(if is_own { TypePath::Own } else { TypePath::Table(table) })
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
    let py = kind.py();
    let is_plain = || -> PyResult<bool> {
        let has_attributes = kind.getattr(intern!(py, "__dictoffset__"))?.extract::<isize>()? != 0;
        let is_of_ctypes = || PyResult::Ok(kind.get_type().module()? == "_ctypes");
        Ok((!has_attributes && is_immutable(kind)) || is_of_ctypes()?)
    };
    let names = [METHOD, CUDA_ARRAY_INTERFACE];
    // Scalars of NumPy describe some dtypes, such as dates, as bytes.
    let is_numpys = Framework::look_up(kind).has_numpys_memory;
    buffer::has_buffer(kind)
        && !is_numpys
        && looks_up_plainly(kind)
        && names.iter().all(|name| inherited(kind, name).is_none())
        && is_plain().unwrap_or(false)
}

/// Whether a type has the same methods as the class whose table it inherits.
fn goes_by_the_table_of(kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> bool {
    let inherits = |name| Ok(has_same(name, kind, publisher));
    let Ok(serves) = serves(inherits, || Ok::<_, std::convert::Infallible>(is_hook_off(kind)));
    serves
}

/// Whether two types have the same attribute, or both have none.
fn has_same(name: &str, kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> bool {
    match (inherited(kind, name), inherited(publisher, name)) {
        (Some(found), Some(theirs)) => found.is(&theirs),
        (None, None) => true,
        _ => false,
    }
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
