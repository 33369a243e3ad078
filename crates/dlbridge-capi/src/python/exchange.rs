//! Imports through DLPack's C exchange API, without a Python call.
//! Finding a type's table belongs to `table`.
//! Invariant: a table is used only for objects of the exact type for which it was found.

use std::ptr;

use dlbridge::ffi::Unwinds;
use dlbridge::protocol::stream::platform;
use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS, may_be_conjugated, no_memory};
use dlbridge::sys::{DLDeviceType, DLPackExchangeAPI};
use dlbridge::{Device, Flags, Tensor, TypeCode};

use super::api::{Pointer, foreign};
use super::attached::{Object, Python};
use super::constants::Constants;
use super::exception::Exception;
use super::table::{self, Grad};
use crate::error::{Error, Result};
use crate::info::Stream;

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called. That is
/// so after a table's failure: `__dlpack__` has the better message.
pub(super) fn import(object: &Object) -> Option<Result<(Tensor, Stream)>> {
    let kind = object.kind().ok()?;
    let table = table::of(&kind)?;
    if table.has_hook {
        // `__dlpack__` exports such tensors as well.
        if let Err(error) = refused(without_values(object))? {
            return Some(Err(error));
        }
    }
    if table.has_itemsize {
        if let Err(error) = refused(without_size(object))? {
            return Some(Err(error));
        }
    }
    let api = table.api?;
    let from_object = api.managed_tensor_from_py_object_no_sync?;
    let mut tensor = ptr::null_mut();
    // SAFETY: the object is of the type that published the table (F5), the thread attached (F1).
    let status =
        foreign(|| unsafe { from_object.unwinding()(object.as_ptr().cast(), &raw mut tensor) });
    if status != 0 {
        let exception = Exception::pending(object.python)?;
        let is_ordinary = exception.is_a(|api| api.PyExc_Exception);
        return (!is_ordinary).then_some(Err(exception.into()));
    }
    // One that succeeds must not have set an exception.
    object.python.clear();
    // SAFETY: the table wrote it, and its producer is trusted (T1 to T9).
    match unsafe { Tensor::from_raw(tensor) } {
        Ok(tensor) => {
            let stream = current_stream(object.python, api, tensor.device());
            if table.is_lazy {
                if let Err(error) = refused(elsewhere(object, tensor.dtype().code))? {
                    return Some(Err(error));
                }
            }
            match requires_grad(object, table.grad) {
                Ok(false) => Some(Ok((tensor, stream))),
                Ok(true) => Some(read_only(tensor).map(|tensor| (tensor, stream))),
                Err(error) if error.is_a(|api| api.PyExc_Exception) => None,
                Err(error) => Some(Err(error.into())),
            }
        }
        Err(error) => {
            // SAFETY: rejected, and so still ours (R3).
            object.python.undisturbed(|| unsafe { dlbridge::ffi::release_raw(tensor) });
            Some(Err(error.into()))
        }
    }
}

/// Whether automatic differentiation records what is done with an object, which it cannot of writes in C.
fn requires_grad(object: &Object, grad: Option<Grad>) -> Result<bool, Exception> {
    let Some(grad) = grad else { return Ok(false) };
    let constants = Constants::get(object.python)?;
    match grad {
        Grad::Requires => object.attribute(constants.requires_grad)?.is_true(),
        Grad::Stops => Ok(!object.attribute(constants.stop_gradient)?.is_true()?),
    }
}

/// The same tensor, read-only.
#[cold]
fn read_only(tensor: Tensor) -> Result<Tensor> {
    let flags = tensor.flags() | Flags::READ_ONLY;
    let descriptor = tensor.as_raw();
    // SAFETY: the lists and the elements are those of the tensor, which its owner keeps alive (R2).
    Ok(unsafe { dlbridge::ffi::from_holder_raw(|| tensor, &descriptor, flags) }?)
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

/// Refuses an object for a reason, if there is one. An object that does not answer is left to
/// `__dlpack__`.
fn refused(reason: Result<Option<impl Into<String>>, Exception>) -> Option<Result<()>> {
    match reason {
        Ok(None) => Some(Ok(())),
        Ok(Some(reason)) => Some(Err(Error::Unsupported(reason.into()))),
        Err(error) if error.is_a(|api| api.PyExc_Exception) => None,
        Err(error) => Some(Err(error.into())),
    }
}

/// Why the memory does not hold the values, by PyTorch's methods: PyTorch conjugates and negates lazily,
/// and has zeros without memory. Its table exports the memory all the same.
fn elsewhere(object: &Object, code: TypeCode) -> Result<Option<&'static str>, Exception> {
    let constants = Constants::get(object.python)?;
    let is = |method| call(object, method)?.is_true();
    if is(constants.is_neg)? {
        return Ok(Some(NEGATED));
    }
    if may_be_conjugated(code) && is(constants.is_conj)? {
        return Ok(Some(CONJUGATED));
    }
    Ok(is(constants.is_zeros)?.then_some(ZEROS))
}

/// The refusal of an array whose elements have no bytes: NumPy's own `__dlpack__` divides by their size, which ends the
/// process.
fn without_size(object: &Object) -> Result<Option<&'static str>, Exception> {
    let itemsize = object.attribute(Constants::get(object.python)?.itemsize)?;
    let message = "dtype: expected elements of a byte or more, found one whose elements have none";
    Ok((itemsize.integer()? == 0).then_some(message))
}

/// Why the memory does not hold the values of a class derived from PyTorch's, whose objects may have elements and no
/// memory.
fn without_values(object: &Object) -> Result<Option<String>, Exception> {
    if let Some(reason) = elsewhere(object, TypeCode::COMPLEX)? {
        return Ok(Some(reason.to_owned()));
    }
    let [count, storage, address] = Constants::get(object.python)?.memory;
    if !call(object, count)?.is_true()? {
        return Ok(None);
    }
    let has_memory = match call(&call(object, storage)?, address) {
        Ok(address) => address.is_true()?,
        // That of a wrapper must not be asked for.
        Err(error) if error.is_a(|api| api.PyExc_Exception) => false,
        Err(error) => return Err(error),
    };
    Ok(if has_memory { None } else { Some(no_memory(&object.kind()?.text()?)) })
}

fn call(object: &Object, method: Pointer) -> Result<Object, Exception> {
    object.call(method, [], ptr::null_mut())
}
