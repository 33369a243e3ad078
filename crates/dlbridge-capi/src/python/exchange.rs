//! Imports through DLPack's C exchange API, without a Python call.
//! Finding a type's table belongs to `table`.
//! Invariant: a table is used only for objects of the exact type for which it was found.

use std::ptr;

use dlbridge::ffi::Unwinds;
use dlbridge::protocol::stream::platform;
use dlbridge::protocol::table::{CONJUGATED, NEGATED, may_be_conjugated};
use dlbridge::sys::{DLDeviceType, DLPackExchangeAPI};
use dlbridge::{Device, Tensor, TypeCode};

use super::api::foreign;
use super::attached::{Object, Python};
use super::constants::Constants;
use super::exception::Exception;
use super::table;
use crate::error::{Error, Result};
use crate::info::Stream;

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called. That is
/// so after a table's failure: `__dlpack__` has the better message.
pub(super) fn import(object: &Object) -> Option<Result<(Tensor, Stream)>> {
    let kind = object.kind().ok()?;
    let table = table::of(&kind)?;
    let from_object = table.api.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table (F5), the thread attached (F1).
    let status =
        foreign(|| unsafe { from_object.unwinding()(object.as_ptr().cast(), &raw mut tensor) });
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
            let stream = current_stream(object.python, table.api, tensor.device());
            let resolved = if table.is_lazy { resolved(object, tensor)? } else { Ok(tensor) };
            Some(resolved.map(|tensor| (tensor, stream)))
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
    let status = foreign(|| unsafe {
        ask.unwinding()(DLDeviceType(device.kind.0), device.id, &raw mut stream)
    });
    python.clear();
    (status == 0).then_some(stream)
}

/// Refuses a tensor whose memory does not hold the values of its object: PyTorch conjugates and negates
/// lazily, and its table exports the numbers before that. An object that does not answer is left to
/// `__dlpack__`.
fn resolved(object: &Object, tensor: Tensor) -> Option<Result<Tensor>> {
    match elsewhere(object, tensor.dtype().code) {
        Ok(None) => Some(Ok(tensor)),
        Ok(Some(why)) => Some(Err(Error::Unsupported(why.to_owned()))),
        Err(error) if error.is_a(|api| api.PyExc_Exception) => None,
        Err(error) => Some(Err(Error::Python(error))),
    }
}

/// Why the memory does not hold the values, by PyTorch's methods.
fn elsewhere(object: &Object, code: TypeCode) -> Result<Option<&'static str>, Exception> {
    let constants = Constants::get(object.python)?;
    let is = |method| object.call(method, [], ptr::null_mut())?.is_true();
    if is(constants.is_neg)? {
        return Ok(Some(NEGATED));
    }
    let is_conjugated = may_be_conjugated(code) && is(constants.is_conj)?;
    Ok(is_conjugated.then_some(CONJUGATED))
}
