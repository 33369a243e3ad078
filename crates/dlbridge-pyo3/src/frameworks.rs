//! How a framework takes a tensor that Python hands it, found from the type of one of its arrays.
//! Exchange tables belong to `exchange`, deciding between the two to `like`.
//! Invariant: what is remembered of a type belongs to one that is kept alive, so that no other
//! type can come to stand at its address.

use std::sync::OnceLock;

use dlbridge::{DType, Device, DeviceKind, Tensor};
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};
use pyo3::{ffi, intern};

use crate::{Error, Result};

/// What is known of a framework beforehand. Of others, nothing is needed to take writable memory.
pub(crate) struct Framework {
    /// The package that its types come from, as they say themselves.
    root: &'static str,
    /// The package that has its functions, if that is another one.
    package: Option<&'static str>,
    /// Where `from_dlpack` is, if neither the type nor the package has it.
    place: &'static [&'static str],
    /// Whether it makes read-only memory a read-only or immutable array, or copies it (MLX). PyTorch,
    /// Paddle and TVM-FFI make it one that may be written.
    pub(crate) keeps_read_only: bool,
    /// Whether its arrays are in NumPy's memory.
    pub(crate) has_numpys_memory: bool,
    /// Whether it takes nothing but a capsule of the old ABI.
    pub(crate) wants_legacy: bool,
    /// Whether it crashes at a device that it does not have: TensorFlow releases the tensor twice,
    /// Paddle follows a null pointer.
    crashes_elsewhere: bool,
}

const UNKNOWN: Framework = Framework {
    root: "",
    package: None,
    place: &[],
    keeps_read_only: false,
    has_numpys_memory: false,
    wants_legacy: false,
    crashes_elsewhere: false,
};

const JAX: Framework =
    Framework { root: "jax", place: &["dlpack"], keeps_read_only: true, ..UNKNOWN };

const KNOWN: &[Framework] = &[
    Framework { root: "numpy", keeps_read_only: true, has_numpys_memory: true, ..UNKNOWN },
    Framework {
        root: "array_api_strict",
        keeps_read_only: true,
        has_numpys_memory: true,
        ..UNKNOWN
    },
    JAX,
    // Where the type of JAX's arrays says it is from.
    Framework { root: "jaxlib", package: Some("jax"), ..JAX },
    Framework { root: "pyarrow", keeps_read_only: true, ..UNKNOWN },
    Framework {
        root: "tensorflow",
        place: &["experimental", "dlpack"],
        wants_legacy: true,
        crashes_elsewhere: true,
        ..UNKNOWN
    },
    Framework { root: "torch", ..UNKNOWN },
    Framework { root: "paddle", crashes_elsewhere: true, ..UNKNOWN },
    Framework { root: "mlx", keeps_read_only: true, ..UNKNOWN },
    // By their exchange tables: tensors of other extensions, and views of CUDA's Python library.
    Framework { root: "dlbridge", keeps_read_only: true, ..UNKNOWN },
    Framework { root: "cuda", keeps_read_only: true, ..UNKNOWN },
];

impl Framework {
    /// The framework of a type, or of the nearest type that it is derived from.
    pub(crate) fn of(kind: &Bound<'_, PyType>) -> &'static Self {
        Entry::of(kind).map_or_else(|| Self::look_up(kind), |entry| entry.framework)
    }

    #[cold]
    fn look_up(kind: &Bound<'_, PyType>) -> &'static Self {
        roots(kind).iter().find_map(Self::named).unwrap_or(&UNKNOWN)
    }

    fn named(root: &Bound<'_, PyString>) -> Option<&'static Self> {
        KNOWN.iter().find(|known| root == known.root)
    }

    /// Whether a function is one of the framework's own. A type that is derived from one of its
    /// types may well have another's.
    fn has(&self, function: &Bound<'_, PyAny>) -> bool {
        root_of(function).is_some_and(|root| root == self.package())
    }

    fn package(&self) -> &'static str {
        self.package.unwrap_or(self.root)
    }

    /// Refuses what the framework would take for other numbers than they are, or refuse with
    /// words that help nobody.
    pub(crate) fn check(&self, tensor: &Tensor) -> Result<()> {
        let root = self.root;
        if root == "paddle" && tensor.dtype() == DType::U16 {
            return Err(Error::buffer("dtype: paddle reads uint16 as bfloat16; convert it first"));
        }
        if root == "mlx" && matches!(tensor.dtype(), DType::F64 | DType::COMPLEX128) {
            return Err(Error::buffer(format!(
                "dtype: mlx makes half as wide numbers of {}; convert them first",
                tensor.dtype()
            )));
        }
        let has_negative = || tensor.strides().iter().any(|&stride| stride < 0);
        if matches!(root, "paddle" | "torch") && has_negative() {
            return Err(Error::buffer(format!(
                "strides: {root} has no negative ones; copy with to_compact()"
            )));
        }
        Ok(())
    }

    /// Refuses devices that the framework may not have, where asking would crash it: those that
    /// `object`, an array of its own, is not on.
    pub(crate) fn check_device(&self, object: &Bound<'_, PyAny>, device: Device) -> Result<()> {
        if !self.crashes_elsewhere || device == Device::CPU {
            return Ok(());
        }
        let name = intern!(object.py(), "__dlpack_device__");
        let (kind, id): (i32, Option<i32>) = object.call_method0(name)?.extract()?;
        let there = Device::new(DeviceKind(kind), id.unwrap_or(0));
        if there == device {
            return Ok(());
        }
        let root = self.root;
        Err(Error::buffer(format!(
            "device: found {device}, wanted {there}, where the array of {root} is"
        )))
    }
}

/// The packages of a type and of those that it is derived from.
fn roots<'py>(kind: &Bound<'py, PyType>) -> Vec<Bound<'py, PyString>> {
    kind.mro().iter().filter_map(|kind| root_of(&kind)).collect()
}

/// The package of a type or a function.
fn root_of<'py>(thing: &Bound<'py, PyAny>) -> Option<Bound<'py, PyString>> {
    let py = thing.py();
    let module = thing.getattr(intern!(py, "__module__")).ok()?.cast_into::<PyString>().ok()?;
    let root = module.to_str().ok()?.split('.').next()?;
    // What a program has at hand says nothing of where its objects come from.
    let says_nothing = matches!(root, "builtins" | "__main__");
    (!says_nothing).then(|| PyString::new(py, root))
}

/// How many types are remembered. A program meets few.
const SLOTS: usize = 64;

/// What is remembered of a type, which is kept alive.
struct Entry {
    kind: Py<PyType>,
    framework: &'static Framework,
    /// Makes arrays of this kind, if it is the framework's own. Any other is not remembered, since
    /// two objects may well have two namespaces.
    function: OnceLock<Py<PyAny>>,
}

/// Types at the slot of their address. The first one to come stays.
static ENTRIES: [OnceLock<Entry>; SLOTS] = [const { OnceLock::new() }; SLOTS];

impl Entry {
    /// What is remembered of a type, if there is room for it.
    fn of(kind: &Bound<'_, PyType>) -> Option<&'static Self> {
        let address = kind.as_ptr().addr();
        // Types are aligned to 16 bytes and far larger.
        let slot = &ENTRIES[(address >> 4 ^ address >> 10) % SLOTS];
        if slot.get().is_none() {
            // Made before the slot is locked: looking up runs Python code.
            let framework = Framework::look_up(kind);
            let kind = kind.clone().unbind();
            let _ = slot.set(Self { kind, framework, function: OnceLock::new() });
        }
        slot.get().filter(|entry| entry.kind.is(kind))
    }
}

/// A framework's function that makes an array of an object with `__dlpack__`.
pub(crate) struct Importer<'py> {
    pub(crate) function: Bound<'py, PyAny>,
    pub(crate) framework: &'static Framework,
}

impl<'py> Importer<'py> {
    /// The function for the kind of array that `object` is.
    pub(crate) fn of(object: &Bound<'py, PyAny>) -> Result<Self> {
        let py = object.py();
        let kind = object.get_type();
        let entry = Entry::of(&kind);
        let framework = entry.map_or_else(|| Framework::look_up(&kind), |entry| entry.framework);
        if let Some(function) = entry.and_then(|entry| entry.function.get()) {
            return Ok(Self { function: function.bind(py).clone(), framework });
        }
        let function = find(object, &kind, framework)?;
        if !framework.has(&function) {
            return Ok(Self { function, framework: &UNKNOWN });
        }
        if let Some(entry) = entry {
            let _ = entry.function.set(function.clone().unbind());
        }
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
    let message =
        format!("like: found {found}, wanted an array of a framework that has from_dlpack");
    Err(Error::Python(PyTypeError::new_err(message)))
}

/// A type's name with its module, as far as it has them.
pub(crate) fn name_of(kind: &Bound<'_, PyType>) -> String {
    let name = kind.fully_qualified_name().or_else(|_| kind.qualname());
    name.map_or_else(|_| "this type".to_owned(), |name| name.to_string())
}

/// A module, unless nobody has imported it yet. (Importing takes microseconds.)
pub(crate) fn loaded<'py>(name: &Bound<'py, PyString>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = name.py();
    // SAFETY: attached, and a name (F1, F2).
    let module = unsafe { ffi::PyImport_GetModule(name.as_ptr()) };
    // SAFETY: a new reference, or null with or without an exception set (F3).
    match unsafe { Bound::from_owned_ptr_or_opt(py, module) } {
        Some(module) => Ok(Some(module).filter(|module| !module.is_none())),
        None => PyErr::take(py).map_or(Ok(None), Err),
    }
}

/// The array API namespace of an object, if it has one.
pub(crate) fn namespace_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    match object.call_method0(intern!(py, "__array_namespace__")) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(error) if error.is_instance_of::<PyAttributeError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}
