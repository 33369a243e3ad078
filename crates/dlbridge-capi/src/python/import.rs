//! From a Python object to a tensor over its memory; the same rules as `dlbridge-pyo3` has.
//! Capsules belong to `capsule`, tables to `exchange`.
//! Invariant: a producer's `__dlpack__` runs once, unless it answers that it knows no keyword.

use std::ptr;

use dlbridge::Tensor;

use super::exception::Exception;
use super::object::Object;
use super::{capsule, exchange, request};
use crate::error::{Error, Result};
use crate::handle::Stream;

/// Imports a Python object's memory, and tells the stream that it is ready on, if that is known.
pub(crate) fn import(object: &Object, stream: Option<i64>) -> Result<(Tensor, Stream)> {
    if let Some(stream) = stream {
        return import_on(object, stream);
    }
    if let Some(imported) = exchange::import(object) {
        return imported;
    }
    let constants = object.python().constants()?;
    match object.call(constants.dlpack, [constants.version], constants.keywords) {
        Ok(answer) => Ok((capsule::take(&answer)?, None)),
        Err(exception) => Ok((import_otherwise(object, exception)?, None)),
    }
}

/// Imports memory that is wanted on a stream of its device. Only `__dlpack__` can be told; memory of
/// the host has no streams.
#[cold]
fn import_on(object: &Object, stream: i64) -> Result<(Tensor, Stream)> {
    let python = object.python();
    let constants = python.constants()?;
    if capsule::is_capsule(object) {
        let message = "stream: expected an object with __dlpack__, found a capsule, which cannot \
                       be told a stream";
        return Err(Error::Unsupported(message.to_owned()));
    }
    let device = object.call(constants.dlpack_device, [], ptr::null_mut())?;
    if !exchange::has_streams(request::read_device(&device)?.kind) {
        return import(object, None);
    }
    let number = python.integer(stream)?;
    let values = [constants.version, number.as_ptr()];
    let answer = object.call(constants.dlpack, values, constants.keywords_with_stream);
    // DLPack numbers CUDA's default streams, which the driver has handles for, too.
    let handle = ptr::without_provenance_mut(stream as usize);
    Ok((capsule::take(&answer?)?, Some(handle)))
}

/// Imports without keywords, or from a capsule, after `__dlpack__(max_version=...)` failed.
#[cold]
fn import_otherwise(object: &Object, exception: Exception) -> Result<Tensor> {
    let constants = object.python().constants()?;
    if knows_no_keyword(&exception) {
        let answer = object.call(constants.dlpack, [], ptr::null_mut());
        return capsule::take(&answer?);
    }
    if exception.is_a(|api| api.PyExc_AttributeError) && !object.has_attribute(constants.dlpack) {
        if capsule::is_capsule(object) {
            return capsule::take(object);
        }
        let found = object.kind().and_then(|kind| kind.text()).unwrap_or_default();
        let message = format!("object: expected one with __dlpack__, or a capsule, found {found}");
        return Err(Error::Unsupported(message));
    }
    Err(Error::Python(exception))
}

/// Whether a producer's exception says that it does not know the keywords of DLPack 1.0. A
/// `TypeError` from inside a producer does not: trying again would run it twice.
fn knows_no_keyword(exception: &Exception) -> bool {
    if !exception.is_a(|api| api.PyExc_TypeError) {
        return false;
    }
    let message = exception.message();
    // The words of CPython, Cython and PyO3, those for methods that take no keyword at all, and
    // those of pybind11 and nanobind.
    let words = ["max_version", "__dlpack__() takes no keyword", "incompatible function arguments"];
    words.iter().any(|words| message.contains(words))
}
