//! From a Python object to a tensor over its memory; the same rules as `dlbridge-pyo3` has.
//! Capsules belong to `capsule`, tables to `exchange`.
//! Invariant: a producer's `__dlpack__` runs once, unless it answers that it knows no keyword.

use std::ptr;

use dlbridge::Tensor;

use super::exception::Exception;
use super::object::Object;
use super::{capsule, exchange};
use crate::error::{Error, Result};

/// Takes a Python object's memory as a tensor.
pub(crate) fn import(object: &Object) -> Result<Tensor> {
    if let Some(tensor) = exchange::import(object) {
        return tensor;
    }
    let constants = object.python().constants()?;
    match object.call(constants.dlpack, [constants.version], constants.keywords) {
        Ok(answer) => capsule::take(&answer),
        Err(exception) => import_otherwise(object, exception),
    }
}

/// What remains when `__dlpack__(max_version=...)` failed.
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
        let message = format!("object: found {found}, wanted one with __dlpack__ or a capsule");
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
