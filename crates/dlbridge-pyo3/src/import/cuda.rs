//! Imports device memory through `__cuda_array_interface__`.
//! Reading its dict belongs to `ffi::interface`, waiting for streams to `crate::stream`.

use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use super::Protocol;
use crate::error::unless_refused;
use crate::ffi::driver::device_of_pointer;
use crate::ffi::interface::{Interface, pointer, wrong};
use crate::stream::{Ready, Stream};
use crate::{Error, Result};

/// Imports device memory, ready for a stream.
pub(super) fn import(
    object: Borrowed<'_, '_, PyAny>,
    stream: Stream,
) -> Result<Option<(Tensor, Protocol)>> {
    let tensor = import_cuda_array_interface(object, stream)?;
    Ok(tensor.map(|tensor| (tensor, Protocol::CudaArrayInterface)))
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
    let work = work_before(py, &interface)?;
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
fn work_before<'py>(py: Python<'py>, interface: &Interface<'py>) -> Result<Option<Stream>> {
    let Some(found) = interface.get(intern!(py, "stream"))? else { return Ok(None) };
    match unless_refused(py, found.extract::<i64>())? {
        Some(number) if number > 0 => found.extract::<Stream>().map(Some),
        _ => {
            wrong("stream", &found, "None, 1 (legacy default), 2 (per-thread default) or a handle")
        }
    }
}
