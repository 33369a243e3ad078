//! Finds the fast import path of a type: one without a Python call.
//! Importing by that path belongs to `import`, caching it to `cache`.
//! Invariant: a table is used only for types whose methods are those of the class that publishes
//! it.

use dlbridge::protocol::table::{ATTRIBUTE, DISPATCH, HOOK, METHODS, serves};
use dlbridge::sys::DLPackExchangeAPI;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTypeInfo, intern};

use super::framework::Framework;
use super::loaded;
use crate::error::unless_refused;
use crate::ffi::buffer;
use crate::ffi::class::{
    inherited, is_final, is_immutable, is_named, kept_of, looks_up_plainly, mro_of, names_of, own,
};
use crate::ffi::numpy::{self, Array};
use crate::ffi::published::{self, Published};
use crate::ffi::torch::{self, Class, TorchTensor};
use crate::ffi::type_version;
use crate::interpreter::Attributes;
use crate::{Result, TensorObject};

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
    /// Another class derived from `numpy.ndarray`, with its methods: from the same fields, which come first in its objects.
    DerivedNumPy(Array<'a, 'py>),
    /// One with a `__dlpack__` of its own: by that, if its elements have bytes.
    NumPySubclass,
    /// `torch.Tensor` without its table, or a class derived from it with a hook of its own, which may have no memory: by
    /// `__dlpack__`, if its memory holds its values.
    TorchSubclass,
    /// `dlbridge.Tensor` of this library: another handle of the tensor inside.
    Own(Published<'a, 'py>),
    /// Through the exchange table that the type, or a base of it, publishes.
    Table(Published<'a, 'py>),
    /// `torch.Tensor`, or a class derived from it without a hook of its own: by PyTorch's stable C shim, otherwise by the
    /// table.
    Torch(TorchTensor<'a, 'py>),
    /// By the buffer protocol, for a type that has no protocol before it: `bytes`, `memoryview`,
    /// `array.array`, arrays of ctypes. Asking for `__dlpack__` first takes four times as long.
    Buffer,
    /// An array of JAX: by its buffer, which describes the same memory as `__dlpack__`, waits for it as well, and
    /// takes a fifth of the time. Arrays without one go by `__dlpack__`: bfloat16, of several shards, on a device.
    Jax,
}

impl Path<'_, '_> {
    /// The same path, but for a tensor of PyTorch or of this library that of its exchange table.
    pub(crate) fn by_table(self) -> Self {
        match self {
            Self::Torch(tensor) => Self::Table(tensor.published()),
            Self::Own(published) => Self::Table(published),
            path => path,
        }
    }
}

/// The [`Path`] of all objects of a type.
#[derive(Clone, Copy, Debug)]
pub(super) enum TypePath {
    NumPy,
    Masked,
    DerivedNumPy,
    NumPySubclass,
    TorchSubclass,
    Own,
    Table(&'static DLPackExchangeAPI),
    Torch,
    Buffer,
    Jax,
}

/// What is cached of a type.
pub(super) struct Found<'py> {
    pub(super) path: Option<TypePath>,
    /// The version of the type that has this path.
    pub(super) version: u32,
    /// The `__dlpack__` of the class that publishes the table, at the first sight.
    pub(super) method: Option<Bound<'py, PyAny>>,
}

/// Finds the fast path of a type. No code of the type or its metaclass runs. `method_of` tells which `__dlpack__` a
/// class with a table had at its first sight, if it is cached.
///
/// # Errors
///
/// An exception that says nothing of the type (`error::is_refusal`): without memory, or of a signal handler.
#[cold]
pub(super) fn find<'py>(
    kind: &Bound<'py, PyType>,
    method_of: impl Fn(&Bound<'py, PyType>) -> Option<Py<PyAny>>,
) -> Result<Found<'py>> {
    let fixed = |path| Ok(Found { path, version: type_version::ANY, method: None });
    if numpy::is_array_type(kind)? {
        return fixed(Some(TypePath::NumPy));
    }
    if is_masked(kind)? {
        return fixed(Some(TypePath::Masked));
    }
    // Before the attributes are looked at: one that changes meanwhile changes the version.
    let version = unless_refused(kind.py(), type_version::of(kind))?.flatten();
    let is_jax = is_jax(kind)?;
    let publisher = if is_jax { Some(kind.clone()) } else { publisher_of(kind)? };
    let Some(publisher) = publisher else {
        let path = match array_class_of(kind)? {
            // The fields of a stale path would be those of another object: the version belongs to this type alone.
            Some(class)
                if version.is_some_and(|version| version != type_version::ANY)
                    && numpy::is_array_type(&class)?
                    && all(&METHODS, |name| has_same(name, kind, &class))? =>
            {
                Some(TypePath::DerivedNumPy)
            }
            Some(_) => Some(TypePath::NumPySubclass),
            None => match torch::tensor_class(kind)? {
                // Of a PyTorch without a table.
                Some(tensor) => has_same(METHOD, kind, &tensor)?.then_some(TypePath::TorchSubclass),
                None => has_only_a_buffer(kind)?.then_some(TypePath::Buffer),
            },
        };
        let version = path.and(version).unwrap_or(type_version::ANY);
        return Ok(Found { path, version, method: None });
    };
    let now = inherited(&publisher, METHOD)?;
    let first = method_of(&publisher).or_else(|| method_of(kind));
    let method = first.map(|first| first.into_bound(kind.py())).or_else(|| now.clone());
    let is_as_first = match (&method, &now) {
        (Some(first), Some(now)) => first.is(now),
        (None, None) => true,
        _ => false,
    };
    // A change that could not be told would be missed for ever.
    let is_known = is_as_first && version.is_some();
    let path = if is_jax {
        is_known.then_some(TypePath::Jax)
    } else {
        by_table(kind, &publisher, is_known)?
    };
    Ok(Found { path, version: version.unwrap_or(type_version::ANY), method })
}

/// The class of NumPy's arrays from which a type is derived.
fn array_class_of<'py>(kind: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyType>>> {
    for class in mro_of(kind)? {
        if is_named(&class, |module| module == "numpy", "ndarray")? {
            return Ok(Some(class));
        }
    }
    Ok(None)
}

/// The class that publishes the table of a type.
fn publisher_of<'py>(kind: &Bound<'py, PyType>) -> PyResult<Option<Bound<'py, PyType>>> {
    for class in mro_of(kind)? {
        if own(&class, ATTRIBUTE)?.is_some() {
            return Ok(Some(class));
        }
    }
    Ok(None)
}

/// The fast path of a type whose table a class publishes, if the table may be used.
fn by_table(
    kind: &Bound<'_, PyType>,
    publisher: &Bound<'_, PyType>,
    may_use_table: bool,
) -> Result<Option<TypePath>> {
    let goes_by_the_table = may_use_table && goes_by_the_table_of(kind, publisher)?;
    let Some(table) = published::find(kind)? else { return Ok(None) };
    let class = torch::prepare(publisher, table)?;
    let may_be_read = goes_by_the_table && class != Class::Replaced;
    if class != Class::Other && !(may_be_read && has_same(DISPATCH, kind, publisher)?) {
        return Ok(has_same(METHOD, kind, publisher)?.then_some(TypePath::TorchSubclass));
    }
    let is_own = kind.is(TensorObject::type_object(kind.py()));
    let path = match class {
        _ if is_own => TypePath::Own,
        Class::Known => TypePath::Torch,
        _ => TypePath::Table(table),
    };
    Ok(goes_by_the_table.then_some(path))
}

/// Whether a type is that of NumPy's masked arrays, or derived from it. Its module need not be in `sys.modules`.
fn is_masked(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    let is_module = |module: &str| matches!(module, "numpy.ma" | "numpy.ma.core");
    any(&mro_of(kind)?, |class| is_named(class, is_module, "MaskedArray"))
}

/// Whether a type is that of JAX's arrays, not a class in Python of that name.
fn is_jax(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    let is_named = is_named(kind, |module| module.starts_with("jaxlib."), "ArrayImpl")?;
    Ok(is_named && is_final(kind) && buffer::has_buffer(kind))
}

/// Whether objects of a type have the buffer protocol, and cannot have an attribute of a protocol
/// that is tried before it: no class defines one, no code answers for attributes, objects have no
/// attributes of their own, and the type does not change. Of the objects of ctypes, which may have
/// attributes, none is expected to have these.
fn has_only_a_buffer(kind: &Bound<'_, PyType>) -> Result<bool> {
    let py = kind.py();
    // Scalars of NumPy describe some dtypes, such as dates, as bytes.
    if !(buffer::has_buffer(kind) && looks_up_plainly(kind))
        || Framework::look_up(kind)?.has_numpys_memory
        || any(&[METHOD, CUDA_ARRAY_INTERFACE], |name| Ok(inherited(kind, name)?.is_some()))?
    {
        return Ok(false);
    }
    let has_attributes = kept_of(kind, intern!(py, "__dictoffset__"))?.extract::<isize>()? != 0;
    let metaclass = names_of(&kind.get_type())?;
    Ok((!has_attributes && is_immutable(kind))
        || metaclass.is_some_and(|[module, _]| module == "_ctypes"))
}

/// Whether a type has the same methods as the class whose table it inherits.
fn goes_by_the_table_of(kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> Result<bool> {
    serves(|name| Ok(has_same(name, kind, publisher)?), || is_hook_off(kind))
}

/// Whether two types have the same attribute, or both have none.
fn has_same(name: &str, kind: &Bound<'_, PyType>, publisher: &Bound<'_, PyType>) -> PyResult<bool> {
    Ok(match (inherited(kind, name)?, inherited(publisher, name)?) {
        (Some(found), Some(theirs)) => found.is(&theirs),
        (None, None) => true,
        _ => false,
    })
}

/// Whether a PyTorch type disables `__torch_function__`, as `torch.nn.Parameter` does.
fn is_hook_off(kind: &Bound<'_, PyType>) -> Result<bool> {
    let py = kind.py();
    let Some(found) = inherited(kind, HOOK)? else { return Ok(false) };
    let disabled = || match loaded(intern!(py, "torch._C"))? {
        Some(module) => module.attribute_opt(intern!(py, "_disabled_torch_function_impl")),
        None => Ok(None),
    };
    let disabled = unless_refused(py, disabled())?.flatten();
    Ok(disabled.is_some_and(|disabled| found.is(&disabled)))
}

fn any<T>(all: &[T], is: impl Fn(&T) -> PyResult<bool>) -> PyResult<bool> {
    all.iter().try_fold(false, |found, one| Ok(found || is(one)?))
}

fn all<T>(all: &[T], are: impl Fn(&T) -> PyResult<bool>) -> PyResult<bool> {
    all.iter().try_fold(true, |found, one| Ok(found && are(one)?))
}
