//! Imports objects without DLPack through other protocols.
//! DLPack itself belongs to `dlpack`, CUDA's interface to `cuda`, Arrow's to `columns`; reading the dict of an interface to
//! `ffi::interface`.
//! Invariant: these protocols are tried after DLPack, those with the more precise description
//! first.

use dlbridge::{DType, Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::{Protocol, columns, cuda};
use crate::dtypes::names::name_of;
use crate::dtypes::numpy::number_of;
use crate::error::unless_refused;
use crate::ffi::acquired::{self, Acquired};
use crate::ffi::buffer;
use crate::ffi::interface::{Interface, pointer, wrong};
use crate::ffi::memory::{ForeignMemory, viewed};
use crate::ffi::numpy::Array;
use crate::interpreter::Attributes;
use crate::stream::Stream;
use crate::{Error, Result, TensorObject};

/// Imports an object through the first protocol that it has; `None` if it has none.
/// Device memory is ready for the default stream.
pub(super) fn import_by_fallback(
    object: Borrowed<'_, '_, PyAny>,
) -> Result<Option<(Tensor, Protocol)>> {
    if let Some(outcome) = cuda::import(object, Stream::DEFAULT)? {
        return Ok(Some(outcome));
    }
    if let Some(outcome) = import_buffer(object)? {
        return Ok(Some(outcome));
    }
    if let Some(tensor) = import_array_interface(object)? {
        return Ok(Some((tensor, Protocol::ArrayInterface)));
    }
    columns::import(object)
}

/// Imports an object with the buffer protocol.
pub(super) fn import_buffer(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    if !buffer::has_buffer(&object.get_type()) {
        return Ok(None);
    }
    Ok(Some((acquired::import_buffer(object, TensorObject::keep)?, Protocol::Buffer)))
}

/// Imports an array of JAX by its buffer; `None` for one that has none, or was deleted.
pub(super) fn import_jax(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    let found = unless_refused(object.py(), acquired::import_jax(object))?;
    Ok(found.map(|tensor| (tensor, Protocol::Buffer)))
}

/// Imports an object whose `__dlpack__` raised `BufferError`; `None` if other ways to its memory refuse
/// it as well, whose errors say less than that exception.
pub(super) fn import_refused(
    object: Borrowed<'_, '_, PyAny>,
) -> Result<Option<(Tensor, Protocol)>> {
    let py = object.py();
    if let Some(found) = unless_refused(py, import_buffer(object))?.flatten() {
        return Ok(Some(found));
    }
    let tensor = unless_refused(py, import_ml_dtypes(object))?.flatten();
    Ok(tensor.map(|tensor| (tensor, Protocol::ArrayInterface)))
}

/// Imports the memory that the object's `__array_interface__` describes (NumPy, the array interface
/// protocol, version 3); `None` if it has none.
fn import_array_interface(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let name = intern!(py, "__array_interface__");
    let Some(interface) = Interface::read(object, name, 3..=3)? else { return Ok(None) };
    interface.refuse_mask()?;
    let (memory, buffer) = match interface.address()? {
        Some((address, read_only)) => {
            (interface.memory(pointer(address), Device::CPU, read_only)?, None)
        }
        None => within_buffer(py, &interface)?,
    };
    interface.tensor(object, memory, buffer).map(Some)
}

/// The clause on `data` that is no pair: the memory is the buffer of that object, from `offset` on.
/// Its size is known. (Without `data` it is the array's own buffer, which was already tried.)
fn within_buffer<'py>(
    py: Python<'py>,
    interface: &Interface<'py>,
) -> Result<(ForeignMemory, Option<Acquired>)> {
    let exporter = interface.need(intern!(py, "data"))?;
    if !buffer::has_buffer(&exporter.get_type()) {
        return wrong("data", &exporter, "an address or an object with the buffer protocol");
    }
    let offset = match interface.get(intern!(py, "offset"))? {
        None => 0,
        Some(offset) => match unless_refused(py, offset.extract::<usize>())? {
            Some(offset) => offset,
            None => return wrong("offset", &offset, "a number of bytes"),
        },
    };
    let (acquired, bytes) = acquired::open(exporter.as_borrowed())?;
    if !bytes.is_contiguous()? {
        return Err(Error::buffer("data: expected a contiguous buffer, found one with gaps"));
    }
    let size = bytes.reach()?.above;
    let data = bytes.data().wrapping_byte_add(offset);
    let memory = interface.memory(data, Device::CPU, bytes.is_read_only())?;
    let reach = memory.reach()?;
    let fits = reach.below <= offset && offset.checked_add(reach.above).is_some_and(|n| n <= size);
    if fits {
        return Ok((memory, Some(acquired)));
    }
    let (below, above) = (reach.below, reach.above);
    Err(Error::buffer(format!(
        "data: expected {below} bytes before offset {offset} and {above} from it, found {size} bytes"
    )))
}

/// Imports an array of bfloat16, of a float of 8 bits, or of complex numbers of 32 bits, by its bits as integers; `None`
/// for any other object. NumPy itself does not export these types of the package `ml_dtypes`.
///
/// The bits are those of an array that is read from its C struct. An answer of another
/// object to `view` proves nothing about its memory.
fn import_ml_dtypes(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let Some(dtype) = object.attribute_opt(intern!(py, "dtype"))? else { return Ok(None) };
    let name =
        dtype.attribute_opt(intern!(py, "name"))?.and_then(|name| name.extract::<String>().ok());
    let Some(dtype) = name.and_then(|name| name.parse::<DType>().ok()) else { return Ok(None) };
    // NumPy's own types are refused for another reason, such as their byte order.
    let bits = match (dtype.itemsize(), number_of(dtype)) {
        (Some(1), None) => DType::U8,
        (Some(2), None) => DType::U16,
        (Some(4), None) => DType::U32,
        _ => return Ok(None),
    };
    let array = py.import(intern!(py, "numpy"))?.attribute(intern!(py, "ndarray"))?;
    // Of arrays of a derived class as well, `view` makes an array of NumPy's own class.
    let integers = object.call_method1(intern!(py, "view"), (name_of(py, bits), array))?;
    let Some(integers) = Array::of(integers.as_borrowed())? else { return Ok(None) };
    let tensor = integers.tensor(TensorObject::keep)?;
    let Some(tensor) = tensor.filter(|integers| integers.dtype() == bits) else {
        return Ok(None);
    };
    viewed(&tensor.into_shared(), dtype).map(Some)
}
