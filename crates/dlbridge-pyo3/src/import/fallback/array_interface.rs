//! Imports an object with NumPy's `__array_interface__`.
//! Device memory belongs to `cuda_array_interface`.
//! Reading the dict, and making the tensor, belongs to `ffi::interface`.

use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::error::unless_refused;
use crate::ffi::buffer::{self, Acquired};
use crate::ffi::interface::{Interface, pointer, wrong};
use crate::ffi::memory::ForeignMemory;
use crate::{Error, Result};

/// Imports the memory that the object's `__array_interface__` describes (NumPy, the array interface
/// protocol, version 3); `None` if it has none.
pub(super) fn import_array_interface(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
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
    let (acquired, bytes) = buffer::open(exporter.as_borrowed())?;
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
