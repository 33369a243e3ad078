//! Imports a Python object as a tensor.
//! What follows a failed call belongs to `dlbridge::protocol::call`, capsules to `capsule`,
//! tables to `exchange`.
//! Invariant: a producer's `__dlpack__` runs once, except that a keyword error leads to a second
//! call.

use std::ptr;

use dlbridge::Tensor;
use dlbridge::protocol::call::{Keywords, Next, Raised, after};
use dlbridge::protocol::stream::platform;

use super::answer::read_device;
use super::attached::Object;
use super::constants::Constants;
use super::exception::Exception;
use super::{capsule, exchange};
use crate::error::{Error, Result};
use crate::info::Stream;

/// Imports a Python object's memory, and tells the stream that it is ready on, if that is known.
pub(crate) fn import(object: &Object, stream: Option<i64>) -> Result<(Tensor, Stream)> {
    if let Some(stream) = stream {
        return import_on(object, stream);
    }
    if let Some(imported) = exchange::import(object) {
        return imported;
    }
    match ask(object, Keywords::SHARED) {
        Ok(answer) => Ok((capsule::take(&answer)?, None)),
        Err((exception, next)) => Ok((import_otherwise(object, exception, next)?, None)),
    }
}

/// Imports memory that is wanted on a stream of its device. Only `__dlpack__` can be told; memory
/// of the host has no streams.
#[cold]
fn import_on(object: &Object, stream: i64) -> Result<(Tensor, Stream)> {
    if capsule::is_capsule(object) {
        let message = "stream: expected an object with __dlpack__, found a capsule, which cannot \
                       be told a stream";
        return Err(Error::Unsupported(message.to_owned()));
    }
    let constants = Constants::get(object.python)?;
    let device = read_device(&object.call(constants.dlpack_device, [], ptr::null_mut())?)?;
    if device.is_host_accessible() && platform(device).is_none() {
        return import(object, None);
    }
    let keywords = Keywords::on_stream(Some(stream), device)?;
    let answer = ask(object, keywords).map_err(|(exception, _)| exception)?;
    // -1 asks the producer for no ordering. CUDA's driver knows DLPack's numbers of default streams.
    let handle = (stream != -1).then(|| ptr::without_provenance_mut(stream as usize));
    Ok((capsule::take(&answer)?, handle))
}

/// Calls `__dlpack__`, a second time if it does not know a keyword. The exception of the last call
/// comes with what follows it.
fn ask(object: &Object, mut keywords: Keywords) -> Result<Object, (Exception, Next)> {
    loop {
        let exception = match call(object, keywords) {
            Ok(answer) => return Ok(answer),
            Err(exception) => exception,
        };
        match after(raised(object, &exception, &exception.message()), keywords) {
            Next::Call(fewer) => keywords = fewer,
            next => return Err((exception, next)),
        }
    }
}

/// `object.__dlpack__(...)` with `max_version`, `stream`, both or none.
fn call(object: &Object, keywords: Keywords) -> Result<Object, Exception> {
    let python = object.python;
    let constants = Constants::get(python)?;
    let (method, version) = (constants.dlpack, constants.version);
    let stream = keywords.stream.map(|number| python.integer(number)).transpose()?;
    match (keywords.max_version, &stream) {
        (Some(_), None) => object.call(method, [version], constants.keywords),
        (Some(_), Some(stream)) => {
            object.call(method, [version, stream.as_ptr()], constants.keywords_with_stream)
        }
        (None, Some(stream)) => object.call(method, [stream.as_ptr()], constants.keywords_legacy),
        (None, None) => object.call(method, [], ptr::null_mut()),
    }
}

fn raised<'a>(object: &Object, exception: &Exception, message: &'a str) -> Raised<'a> {
    let dlpack = Constants::get(object.python).map(|constants| constants.dlpack);
    let has_method = || dlpack.is_ok_and(|dlpack| object.has_attribute(dlpack));
    if exception.is_a(|api| api.PyExc_TypeError) {
        Raised::TypeError(message)
    } else if exception.is_a(|api| api.PyExc_AttributeError) && !has_method() {
        Raised::NoMethod
    } else {
        Raised::Other
    }
}

/// Imports from a capsule, after `__dlpack__` failed.
#[cold]
fn import_otherwise(object: &Object, exception: Exception, next: Next) -> Result<Tensor> {
    if next != Next::OtherProtocols {
        return Err(exception.into());
    }
    if capsule::is_capsule(object) {
        return capsule::take(object);
    }
    let found = object.kind().and_then(|kind| kind.text()).unwrap_or_default();
    let message = format!("object: expected one with __dlpack__, or a capsule, found {found}");
    Err(Error::Unsupported(message))
}
