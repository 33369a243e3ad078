//! Imports through DLPack's C exchange API, without a Python call.
//! Finding a type's table belongs to `table`.
//! Invariant: a table is used only for objects of the exact type for which it was found.

use std::ptr;

use dlbridge::protocol::stream::platform;
use dlbridge::protocol::table::{CONJUGATED, may_be_conjugated};
use dlbridge::sys::{DLDeviceType, DLPackExchangeAPI};
use dlbridge::{Device, Tensor};

use super::attached::{Object, Python};
use super::constants::Constants;
use super::exception::Exception;
use super::foreign::foreign;
use super::table;
use crate::error::{Error, Result};
use crate::info::Stream;

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called. That is
/// so after a table's failure: `__dlpack__` has the better message.
pub(super) fn import(object: &Object) -> Option<Result<(Tensor, Stream)>> {
    let kind = object.kind().ok()?;
    let table = table::of(&kind)?;
    let from_object = table.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table (F5), the thread attached (F1).
    let status = foreign(|| unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) });
    if status != 0 {
        let exception = Exception::pending(object.python)?;
        let is_ordinary = exception.is_a(|api| api.PyExc_Exception);
        return (!is_ordinary).then_some(Err(Error::Python(exception)));
    }
    // One that succeeds must not have set an exception.
    object.python.clear();
    // SAFETY: the table wrote it, and its producer is trusted (T1 to T9).
    match unsafe { Tensor::from_raw(tensor) } {
        Ok(tensor) => {
            let stream = current_stream(object.python, table, tensor.device());
            Some(resolved(object, tensor)?.map(|tensor| (tensor, stream)))
        }
        Err(rejected) => Some(Err(dlbridge::Error::from(rejected).into())),
    }
}

/// The producer's current stream on a device, on which the memory is ready.
fn current_stream(python: Python, table: &DLPackExchangeAPI, device: Device) -> Stream {
    platform(device)?;
    let ask = table.current_work_stream?;
    let mut stream = ptr::null_mut();
    // SAFETY: a place to write to; may be called on any attached thread (F1, F5).
    let status =
        foreign(|| unsafe { ask(DLDeviceType(device.kind.0), device.id, &raw mut stream) });
    python.clear();
    (status == 0).then_some(stream)
}

/// Refuses a tensor whose numbers are not those of its object: PyTorch conjugates lazily, and its
/// table exports the numbers before that. An object that does not answer is left to `__dlpack__`.
fn resolved(object: &Object, tensor: Tensor) -> Option<Result<Tensor>> {
    if !may_be_conjugated(tensor.dtype().code) {
        return Some(Ok(tensor));
    }
    match is_conjugated(object) {
        Ok(false) => Some(Ok(tensor)),
        Ok(true) => Some(Err(Error::Unsupported(CONJUGATED.to_owned()))),
        Err(error) if error.is_a(|api| api.PyExc_Exception) => None,
        Err(error) => Some(Err(Error::Python(error))),
    }
}

#[cold]
fn is_conjugated(object: &Object) -> Result<bool, Exception> {
    let name = Constants::get(object.python)?.is_conj;
    if !object.has_attribute(name) {
        return Ok(false);
    }
    object.call(name, [], ptr::null_mut())?.is_true()
}
