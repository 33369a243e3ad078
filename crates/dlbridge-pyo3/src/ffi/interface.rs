//! Reads the dict of NumPy's and CUDA's array interfaces, and makes tensors over the memory that it
//! describes.
//! Where the memory is belongs to `import::fallback`.
//! Invariant: an entry that violates the protocol is a `BufferError` that names it.

use std::ffi::c_void;
use std::ptr;

use dlbridge::{DType, Device, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{Borrowed, intern};

use super::acquired::Acquired;
use super::memory::ForeignMemory;
use crate::dtypes::numpy::dtype_of_typestr;
use crate::error::unless_refused;
use crate::interpreter::Attributes;
use crate::release::{NeedsInterpreter, Owner};
use crate::{Error, Result};

/// The dict of an object's `__array_interface__` or `__cuda_array_interface__`.
pub(crate) struct Interface<'py>(Bound<'py, PyDict>);

impl<'py> Interface<'py> {
    /// Reads an object's attribute; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Something other than a dict, or a version that is not among those given.
    pub(crate) fn read(
        object: Borrowed<'_, 'py, PyAny>,
        name: &Bound<'py, PyString>,
        versions: std::ops::RangeInclusive<i64>,
    ) -> Result<Option<Self>> {
        let Some(found) = object.attribute_opt(name)? else { return Ok(None) };
        let Ok(dict) = found.cast_into::<PyDict>() else {
            return Err(Error::buffer(format!("{name}: expected a dict, found another object")));
        };
        let this = Self(dict);
        let py = object.py();
        let version = this.need(intern!(py, "version"))?;
        let number = unless_refused(py, version.extract::<i64>())?;
        if number.is_some_and(|number| versions.contains(&number)) {
            return Ok(Some(this));
        }
        let (first, last) = (versions.start(), versions.end());
        wrong("version", &version, &format!("a number from {first} to {last}"))
    }

    /// An optional entry; None counts as missing.
    pub(crate) fn get(&self, key: &Bound<'py, PyString>) -> Result<Option<Bound<'py, PyAny>>> {
        Ok(self.0.get_item(key)?.filter(|value| !value.is_none()))
    }

    pub(crate) fn need(&self, key: &Bound<'py, PyString>) -> Result<Bound<'py, PyAny>> {
        self.get(key)?.ok_or_else(|| Error::buffer(format!("{key}: expected an entry, found none")))
    }

    fn numbers(&self, key: &str, value: &Bound<'py, PyAny>) -> Result<Vec<i64>> {
        let tuple = value.cast::<PyTuple>().map_err(PyErr::from);
        // Item by item: a subclass may have a `__len__` of its own, whose exceptions PyO3 hides.
        let numbers = tuple.and_then(|tuple| tuple.iter().map(|item| item.extract()).collect());
        match unless_refused(value.py(), numbers)? {
            Some(numbers) => Ok(numbers),
            None => wrong(key, value, "a tuple of integers"),
        }
    }

    pub(crate) fn dtype(&self) -> Result<DType> {
        let found = self.need(intern!(self.0.py(), "typestr"))?;
        match found.extract::<String>() {
            Ok(typestr) => dtype_of_typestr(&typestr),
            Err(_) => wrong("typestr", &found, "a str"),
        }
    }

    /// Rejects masked arrays: a tensor has no mask.
    pub(crate) fn refuse_mask(&self) -> Result<()> {
        match self.get(intern!(self.0.py(), "mask"))? {
            None => Ok(()),
            Some(_) => Err(Error::buffer("mask: expected an array without a mask, found one")),
        }
    }

    /// The `data` entry if it is the pair of an address and whether to write there; `None` for an
    /// object of another kind, or nothing.
    pub(crate) fn address(&self) -> Result<Option<(usize, bool)>> {
        let Some(found) = self.get(intern!(self.0.py(), "data"))? else { return Ok(None) };
        let Ok(pair) = found.cast::<PyTuple>() else { return Ok(None) };
        // Some write 0 and 1 for the flag.
        match unless_refused(pair.py(), pair.extract::<(usize, u8)>())? {
            Some((address, flag @ 0..=1)) => Ok(Some((address, flag == 1))),
            _ => wrong("data", &found, "an address and whether it is read-only"),
        }
    }

    /// Foreign memory of this shape, with these strides.
    pub(crate) fn memory(
        &self,
        data: *mut c_void,
        device: Device,
        read_only: bool,
    ) -> Result<ForeignMemory> {
        let shape = self.numbers("shape", &self.need(intern!(self.0.py(), "shape"))?)?;
        let strides = match self.get(intern!(self.0.py(), "strides"))? {
            Some(strides) => Some(self.numbers("strides", &strides)?),
            None => None,
        };
        let dtype = self.dtype()?;
        Ok(ForeignMemory { data, device, dtype, shape, strides, read_only })
    }

    /// A tensor over the memory that the dict of `object` describes. It keeps both, since either may own
    /// the memory, and the buffer that the memory is in.
    pub(crate) fn tensor(
        &self,
        object: Borrowed<'_, '_, PyAny>,
        memory: ForeignMemory,
        buffer: Option<Acquired>,
    ) -> Result<Tensor> {
        let objects = (object, &self.0).into_pyobject(object.py())?.into_any().unbind();
        // SAFETY: the producer says so as long as the object lives, or its buffer is not released
        // (SAFETY.md, T3 and T8 hold for every protocol).
        unsafe { memory.tensor(Owner::new(Owners { buffer, objects })) }
    }
}

/// The owner of the memory: a buffer, if `data` is one, and the object with its dict.
pub(super) struct Owners {
    pub(super) buffer: Option<Acquired>,
    pub(super) objects: Py<PyAny>,
}

impl NeedsInterpreter for Owners {
    fn release(self, py: Python<'_>) {
        let Self { buffer: _buffer, objects } = self;
        objects.release(py);
    }
}

/// The pointer for an address that is a number. Rust did not allocate its memory.
pub(crate) fn pointer(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}

/// An error that names an entry, what was expected and found.
pub(crate) fn wrong<T>(key: &str, found: &Bound<'_, PyAny>, expected: &str) -> Result<T> {
    let found = found.repr()?;
    Err(Error::buffer(format!("{key}: expected {expected}, found {found}")))
}
