//! From an object with NumPy's `__array_interface__` to a tensor over its memory.
//! Device memory belongs to `cuda_array_interface`.
//! Invariant: the tensor keeps the object, and the dict, which may own what `data` points to.

use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{Borrowed, intern};

use super::buffer;
use super::interface::{Interface, pointer, wrong};
use super::memory::Memory;
use crate::release::Owner;
use crate::{Error, Result};

/// Takes the memory that the object's `__array_interface__` describes (NumPy, the array interface
/// protocol, version 3); `None` if it has none.
pub(super) fn import(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let py = object.py();
    let name = intern!(py, "__array_interface__");
    let Some(interface) = Interface::of(object, name, 3..=3)? else { return Ok(None) };
    interface.refuse_mask()?;
    let (memory, view) = match interface.address()? {
        Some((address, read_only)) => {
            (interface.memory(pointer(address), Device::CPU, read_only)?, py.None().into_bound(py))
        }
        None => within_buffer(&interface)?,
    };
    let owners = PyTuple::new(py, [object.as_any(), interface.dict().as_any(), &view])?;
    // SAFETY: the producer says so as long as the object lives, or the view of its buffer
    // (SAFETY.md, T3 and T8 hold for every protocol).
    unsafe { memory.tensor(Owner::new(owners.into_any().unbind())) }.map(Some)
}

/// The clause on `data` that is no pair: the memory is the buffer of that object, from `offset` on.
/// That can be measured. (Without `data` it is the array's own buffer, which is taken before
/// anybody looks here.)
fn within_buffer<'py>(interface: &Interface<'py>) -> Result<(Memory, Bound<'py, PyAny>)> {
    let exporter = interface.need("data")?;
    if !buffer::has_buffer(exporter.as_borrowed()) {
        return wrong("data", &exporter, "an address or an object with the buffer protocol");
    }
    let offset = match interface.get("offset")? {
        None => 0,
        Some(offset) => match offset.extract::<usize>() {
            Ok(offset) => offset,
            Err(_) => return wrong("offset", &offset, "a number of bytes"),
        },
    };
    let (view, bytes) = buffer::open(exporter.as_borrowed())?;
    if !bytes.is_contiguous()? {
        return Err(Error::buffer("data: found a buffer with gaps, wanted a contiguous one"));
    }
    let size = bytes.reach()?.above;
    let data = bytes.data.wrapping_byte_add(offset);
    let memory = interface.memory(data, Device::CPU, bytes.read_only)?;
    let reach = memory.reach()?;
    let fits = reach.below <= offset && offset.checked_add(reach.above).is_some_and(|n| n <= size);
    if fits {
        return Ok((memory, view));
    }
    let (below, above) = (reach.below, reach.above);
    Err(Error::buffer(format!(
        "data: found {size} bytes, wanted {below} before and {above} from offset {offset} on"
    )))
}
