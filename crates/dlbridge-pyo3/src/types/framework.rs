//! The frameworks that need special treatment, found from the type of an array.
//! Caching belongs to `cache`.

use std::ffi::CString;

use dlbridge::{DType, Device, Tensor, protocol};
use pyo3::exceptions::PyUserWarning;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::error::unless_refused;
use crate::ffi::class::{mro_of, names_of};
use crate::interpreter::Attributes;
use crate::{Error, Result};

/// The properties of a known framework. Writable memory can also be shared with an unknown one.
pub(crate) struct Framework {
    /// The package in `__module__` of its types.
    root: &'static str,
    /// The package of its functions, if it is another one.
    package: Option<&'static str>,
    /// The module of `from_dlpack`, if neither the type nor the package has it.
    pub(crate) place: &'static [&'static str],
    /// Whether it makes a read-only or immutable array of read-only memory, or copies it (MLX).
    /// PyTorch, Paddle and TVM-FFI make a writable array.
    pub(crate) keeps_read_only: bool,
    /// Whether its arrays use NumPy's memory.
    pub(crate) has_numpys_memory: bool,
    /// Whether it narrows numbers of 64 bits by its configuration, and does not say so.
    pub(crate) may_narrow: bool,
    /// Whether it accepts only legacy capsules.
    pub(crate) wants_legacy: bool,
    /// Whether it crashes for a device that it does not have: TensorFlow releases the tensor twice,
    /// Paddle dereferences a null pointer.
    crashes_elsewhere: bool,
}

pub(crate) const UNKNOWN: Framework = Framework {
    root: "",
    package: None,
    place: &[],
    keeps_read_only: false,
    has_numpys_memory: false,
    may_narrow: false,
    wants_legacy: false,
    crashes_elsewhere: false,
};

const JAX: Framework = Framework {
    root: "jax",
    place: &["dlpack"],
    keeps_read_only: true,
    may_narrow: true,
    ..UNKNOWN
};

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
    Framework { root: "cupy", ..UNKNOWN },
    // By their exchange tables: tensors of other extensions, and views of CUDA's Python library.
    Framework { root: "dlbridge", keeps_read_only: true, ..UNKNOWN },
    Framework { root: "cuda", keeps_read_only: true, ..UNKNOWN },
];

impl Framework {
    /// The framework of a type, or of the nearest type that it is derived from.
    #[cold]
    pub(super) fn look_up(kind: &Bound<'_, PyType>) -> Result<&'static Self> {
        Ok(roots(kind)?.iter().find_map(Self::named).unwrap_or(&UNKNOWN))
    }

    fn named(root: &Bound<'_, PyString>) -> Option<&'static Self> {
        KNOWN.iter().find(|known| root == known.root)
    }

    /// Whether a function is the framework's own. A subclass of one of its types may have
    /// another one.
    pub(crate) fn has(&self, function: &Bound<'_, PyAny>) -> Result<bool> {
        let py = function.py();
        let module = unless_refused(py, function.attribute(intern!(py, "__module__")))?;
        let root = module.map_or(Ok(None), |module| root_in(&module))?;
        Ok(root.is_some_and(|root| root == self.package()))
    }

    pub(crate) fn package(&self) -> &'static str {
        self.package.unwrap_or(self.root)
    }

    /// Rejects tensors whose values the framework would misread, or which it would reject with an
    /// unhelpful message.
    pub(crate) fn check(&self, tensor: &Tensor) -> Result<()> {
        let root = self.root;
        let found = tensor.dtype();
        if root == "paddle" && found == DType::U16 {
            return Err(Error::buffer(
                "dtype: expected one that Paddle reads as it is, found uint16, which it reads as bfloat16; \
                 return int32",
            ));
        }
        let narrow = match found {
            DType::F64 => Some(DType::F32),
            DType::COMPLEX128 => Some(DType::COMPLEX64),
            _ => None,
        };
        if let ("mlx", Some(narrow)) = (root, narrow) {
            return Err(Error::buffer(format!(
                "dtype: expected one that MLX keeps, found {found}, which it narrows; return \
                 {narrow}"
            )));
        }
        let has_negative = || tensor.strides().iter().any(|&stride| stride < 0);
        if matches!(root, "paddle" | "torch") && has_negative() {
            return Err(Error::buffer(format!(
                "strides: expected 0 or more, as {root} needs them, found {:?}; pass \
                 np.ascontiguousarray(x)",
                tensor.strides()
            )));
        }
        Ok(())
    }

    /// Warns of an array in which the framework narrowed the numbers of a result.
    pub(crate) fn warn_if_narrowed(&self, array: &Bound<'_, PyAny>, given: DType) -> Result<()> {
        if !self.may_narrow || given.element_bits() < 64 {
            return Ok(());
        }
        let py = array.py();
        let dtype = array.attribute(intern!(py, "dtype"))?;
        let itemsize: u32 = dtype.attribute(intern!(py, "itemsize"))?.extract()?;
        if 8 * itemsize >= given.element_bits() {
            return Ok(());
        }
        let text = format!(
            "dtype: expected one that JAX keeps, found {given}, which it narrowed to {dtype}; set \
             jax.config.update(\"jax_enable_x64\", True), or return {dtype}"
        );
        let text = CString::new(text).expect("names have no null");
        Ok(PyErr::warn(py, py.get_type::<PyUserWarning>().as_any(), &text, 1)?)
    }

    /// Rejects devices on which the framework might crash: those other than the device of
    /// `object`, an array of its own.
    pub(crate) fn check_device(&self, object: &Bound<'_, PyAny>, device: Device) -> Result<()> {
        if !self.crashes_elsewhere || device == Device::CPU {
            return Ok(());
        }
        let name = intern!(object.py(), "__dlpack_device__");
        let (kind, id): (i32, Option<i32>) = object.call_method0(name)?.extract()?;
        let there = protocol::device(kind, id);
        if there == device {
            return Ok(());
        }
        let root = self.root;
        Err(Error::buffer(format!(
            "device: expected {there}, where the array of {root} is, found {device}"
        )))
    }
}

/// The packages of a type and of those that it is derived from.
pub(crate) fn roots<'py>(kind: &Bound<'py, PyType>) -> Result<Vec<Bound<'py, PyString>>> {
    let mut roots = Vec::new();
    for class in mro_of(kind)? {
        if let Some([module, _]) = names_of(&class)? {
            roots.extend(root_in(&module)?);
        }
    }
    Ok(roots)
}

/// The package in a `__module__`.
fn root_in<'py>(module: &Bound<'py, PyAny>) -> Result<Option<Bound<'py, PyString>>> {
    let py = module.py();
    let Ok(module) = module.cast::<PyString>() else { return Ok(None) };
    let Some(module) = unless_refused(py, module.to_str())? else { return Ok(None) };
    let root = module.split('.').next().unwrap_or_default();
    // `builtins` and `__main__` name no framework.
    let says_nothing = matches!(root, "builtins" | "__main__");
    Ok((!says_nothing).then(|| PyString::new(py, root)))
}
