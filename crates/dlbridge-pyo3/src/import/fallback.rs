//! Imports objects without DLPack through other protocols.
//! DLPack itself belongs to `dlpack`; reading the dict of an interface to `ffi::interface`, what capsules of Arrow hold to
//! `ffi::arrow`, waiting for streams to `crate::stream`.
//! Invariant: these protocols are tried after DLPack, those with the more precise description
//! first.

use dlbridge::{DType, Device, Parts, Tensor};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::options::Protocol;
use crate::dtypes::names::name_of;
use crate::dtypes::numpy::number_of;
use crate::error::unless_refused;
use crate::ffi::acquired::{self, Acquired};
use crate::ffi::arrow::{self, Chunk, Chunks};
use crate::ffi::buffer;
use crate::ffi::driver::device_of_pointer;
use crate::ffi::interface::{Interface, pointer, wrong};
use crate::ffi::memory::{ForeignMemory, viewed};
use crate::ffi::numpy::Array;
use crate::interpreter::Attributes;
use crate::stream::{Ready, Stream};
use crate::{Error, Result, TensorObject};

/// The method of an object with one array.
const ARRAY: &str = "__arrow_c_array__";
/// The method of an object with chunks.
const STREAM: &str = "__arrow_c_stream__";

/// Imports an object through the first protocol that it has; `None` if it has none.
/// Device memory is ready for the default stream.
pub(super) fn import_by_fallback(
    object: Borrowed<'_, '_, PyAny>,
) -> Result<Option<(Tensor, Protocol)>> {
    if let Some(outcome) = import_cuda(object, Stream::DEFAULT)? {
        return Ok(Some(outcome));
    }
    if let Some(outcome) = import_buffer(object)? {
        return Ok(Some(outcome));
    }
    if let Some(tensor) = import_array_interface(object)? {
        return Ok(Some((tensor, Protocol::ArrayInterface)));
    }
    if let Some(tensor) = import_arrow(object)? {
        return Ok(Some((tensor, Protocol::Arrow)));
    }
    Ok(import_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Copies the chunks of an object that has `__arrow_c_stream__` and neither DLPack nor a buffer. `None`
/// for other objects.
pub(super) fn copy_chunks(object: Borrowed<'_, '_, PyAny>) -> Result<Option<(Tensor, Protocol)>> {
    let py = object.py();
    let is_chunked = object.hasattr(intern!(py, "__arrow_c_stream__"))?
        && !object.hasattr(intern!(py, "__dlpack__"))?
        && !object.hasattr(intern!(py, "__arrow_c_array__"))?
        && !buffer::has_buffer(&object.get_type());
    if !is_chunked {
        return Ok(None);
    }
    Ok(copy_stream(object)?.map(|tensor| (tensor, Protocol::ArrowStream)))
}

/// Imports device memory, ready for a stream.
pub(super) fn import_cuda(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<Option<(Tensor, Protocol)>> {
    let tensor = import_cuda_array_interface(object, stream)?;
    Ok(tensor.map(|tensor| (tensor, Protocol::CudaArrayInterface)))
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

/// Imports an object whose `__dlpack__` raised a `TypeError` by its `__arrow_c_array__`. If it has none, that exception
/// is raised; if Arrow's array is refused as well, that refusal, which names the cast that helps.
#[cold]
pub(super) fn import_column(
    object: Borrowed<'_, '_, PyAny>,
    exception: PyErr,
) -> Result<(Tensor, Protocol)> {
    let py = object.py();
    match import_arrow(object) {
        Ok(Some(tensor)) => Ok((tensor, Protocol::Arrow)),
        Ok(None) => Err(exception.into()),
        Err(error) if error.is_refusal(py) => Err(error.caused_by(py, exception)),
        Err(error) => Err(error),
    }
}

/// Imports the memory that the object's `__cuda_array_interface__` describes (CUDA Array Interface,
/// version 3; those before lack the stream, and PyTorch says 2), ready for `stream`; `None` if it
/// has none.
///
/// The interface does not name the device; the driver does. An empty array without an address is
/// assumed to be on device 0. Work on the interface's stream is ordered before that of the requested stream.
fn import_cuda_array_interface(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<Option<Tensor>> {
    let py = object.py();
    let name = intern!(py, "__cuda_array_interface__");
    let Some(interface) = Interface::read(object, name, 0..=3)? else { return Ok(None) };
    interface.refuse_mask()?;
    let Some((address, read_only)) = interface.address()? else {
        return Err(Error::buffer(
            "data: expected an address and a read-only flag, found another value",
        ));
    };
    let work = work_before(&interface)?;
    let mut memory = interface.memory(pointer(address), Device::cuda(0), read_only)?;
    memory.reach()?;
    if address != 0 {
        let device = device_of_pointer(address)?;
        memory.set_device(device);
        if let Some(ready) = work.map_or(Ok(None), |work| Ready::on(work, device))? {
            ready.before(stream, device)?;
        }
    }
    interface.tensor(object, memory, None).map(Some)
}

/// The clause on `stream`: None, or a missing entry, means that nothing needs to be waited for; 0
/// is ambiguous, and so forbidden; 1 and 2 are the default streams.
fn work_before(interface: &Interface<'_>) -> Result<Option<Stream>> {
    let Some(found) = interface.get("stream")? else { return Ok(None) };
    match unless_refused(found.py(), found.extract::<i64>())? {
        Some(number) if number > 0 => found.extract::<Stream>().map(Some),
        _ => {
            wrong("stream", &found, "None, 1 (legacy default), 2 (per-thread default) or a handle")
        }
    }
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
        None => within_buffer(&interface)?,
    };
    interface.tensor(object, memory, buffer).map(Some)
}

/// The clause on `data` that is no pair: the memory is the buffer of that object, from `offset` on.
/// Its size is known. (Without `data` it is the array's own buffer, which was already tried.)
fn within_buffer(interface: &Interface<'_>) -> Result<(ForeignMemory, Option<Acquired>)> {
    let exporter = interface.need("data")?;
    if !buffer::has_buffer(&exporter.get_type()) {
        return wrong("data", &exporter, "an address or an object with the buffer protocol");
    }
    let offset = match interface.get("offset")? {
        None => 0,
        Some(offset) => match unless_refused(offset.py(), offset.extract::<usize>())? {
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

/// Imports the values of an object's `__arrow_c_array__`: numbers without nulls, read-only, since
/// arrays are immutable; `None` if it has none.
fn import_arrow(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(method) = object.attribute_opt(intern!(object.py(), ARRAY))? else { return Ok(None) };
    let answer = method.call0()?;
    let Ok((schema, array)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let found = answer.repr()?;
        let message = format!("{ARRAY}: expected a pair of capsules, found {found}");
        return Err(Error::buffer(message));
    };
    let (tensor, is_of_table) = arrow::import(ARRAY, &schema, &array)?;
    own_shape(object, tensor, is_of_table).map(Some)
}

/// A column or a table with the shape that the object itself has, if it is an array of some rank: a long table of an
/// array's elements is not the array.
fn own_shape(object: Borrowed<'_, '_, PyAny>, tensor: Tensor, is_of_table: bool) -> Result<Tensor> {
    let py = object.py();
    // Not the `shape` alone: DuckDB would run the query to count its rows.
    if object.attribute_opt(intern!(py, "ndim"))?.is_none() {
        return Ok(tensor);
    }
    let Some(shape) = object.attribute_opt(intern!(py, "shape"))? else { return Ok(tensor) };
    let Some(shape) = unless_refused(py, shape.extract::<Vec<i64>>())? else { return Ok(tensor) };
    let found = tensor.shape();
    let rows = &found[..1];
    if is_of_table && shape == rows && found[1..] == [1] {
        return Ok(tensor.reshape(&shape)?);
    }
    // Lists of one size are axes here, and objects of the array there.
    let is_table = || is_of_table && shape[1..] == [1];
    if shape.starts_with(rows) && (found.starts_with(&shape) || is_table()) {
        return Ok(tensor);
    }
    Err(Error::dtype(format!(
        "shape: expected rows of an array of shape {shape:?}, found a table of shape {found:?}; pass x.to_numpy()"
    )))
}

/// Imports the only chunk of an object's `__arrow_c_stream__`, read-only; `None` if it has none.
///
/// # Errors
///
/// A `BufferError` for several chunks, and those of a column that is not numbers.
fn import_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open_stream(object)? else { return Ok(None) };
    let py = object.py();
    let Some(first) = chunks.next(py)? else {
        return own_shape(object, chunks.empty()?, chunks.are_of_table()).map(Some);
    };
    if chunks.next(py)?.is_some() {
        return Err(Error::buffer(format!(
            "{STREAM}: expected one chunk, found several; join them: x.rechunk() in Polars, \
             x.combine_chunks() in pyarrow, or copy: x.to_numpy()"
        )));
    }
    own_shape(object, first.tensor()?, chunks.are_of_table()).map(Some)
}

/// Copies all chunks of an object's `__arrow_c_stream__` to new memory; `None` if it has none.
fn copy_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(mut chunks) = open_stream(object)? else { return Ok(None) };
    let mut found = Vec::new();
    let py = object.py();
    while let Some(chunk) = chunks.next(py)? {
        found.push(chunk);
    }
    let copy = if found.is_empty() { chunks.empty() } else { Chunk::joined(py, &found) }?;
    own_shape(object, copy, chunks.are_of_table()).map(Some)
}

/// Calls the method. `None` if there is no such method, or if it needs a package that is not installed
/// (pandas needs pyarrow).
fn open_stream(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Chunks>> {
    let py = object.py();
    let Some(method) = object.attribute_opt(intern!(py, STREAM))? else { return Ok(None) };
    match method.call0() {
        Err(error) if error.is_instance_of::<PyImportError>(py) => Ok(None),
        capsule => Chunks::open(&capsule?).map(Some),
    }
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
    let integers = object.call_method1(intern!(py, "view"), (name_of(py, bits)?, array))?;
    let Some(integers) = Array::of(integers.as_borrowed())? else { return Ok(None) };
    let tensor = integers.tensor(TensorObject::keep)?;
    let Some(tensor) = tensor.filter(|integers| integers.dtype() == bits) else {
        return Ok(None);
    };
    viewed(&tensor.into_shared(), dtype).map(Some)
}
