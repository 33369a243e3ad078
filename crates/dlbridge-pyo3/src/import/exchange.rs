//! Objects whose type publishes an exchange table: importing them, the errors of those that a table rejects, and
//! refusing those that require grad.
//! Finding the table belongs to `types`, calling it to `ffi::published`, calling `__dlpack__` to `dlpack`.
//! Invariants: an object's Python code runs before its memory is imported, never after. A table that fails leads to an
//! exception, that of `__dlpack__` if the type has the method. Only objects with a table are asked whether they require
//! grad: the `__dlpack__` of all others that do raises an exception.

use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS};
use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::error::{is_refusal, unless_refused};
use crate::ffi::callbacks::exporting;
use crate::ffi::published::{Published, failure};
use crate::ffi::torch::may_have_values_elsewhere;
use crate::interpreter::{Attributes, through_pyo3};
use crate::object::TensorObject;
use crate::stream::Stream;
use crate::types::{Path, name_of, path_of};
use crate::{Error, Result};

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_by_table(published: Published<'_, '_>) -> Result<Option<Tensor>> {
    let Some(tensor) = take(published)? else { return Ok(None) };
    if may_have_values_elsewhere(published, tensor.dtype().code) {
        // The object's Python code may move or free the memory.
        drop(tensor);
        return if has_values(published.object())? { take(published) } else { Ok(None) };
    }
    Ok(Some(tensor))
}

#[inline(always)]
fn take(published: Published<'_, '_>) -> Result<Option<Tensor>> {
    match published.tensor()? {
        Some(tensor) => Ok(Some(tensor)),
        None => after_failure(published).map(|()| None),
    }
}

/// Whether a tensor's memory holds the values of its object. An object that raises (`false`) is
/// imported by `__dlpack__`.
#[cold]
fn has_values(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    match unless_refused(object.py(), through_pyo3(|| elsewhere(object)))? {
        Some(None) => Ok(true),
        Some(Some(why)) => Err(Error::buffer(why)),
        None => Ok(false),
    }
}

/// Why an object's memory does not hold its values, by PyTorch's methods, if it has them.
#[cold]
pub(super) fn elsewhere(object: Borrowed<'_, '_, PyAny>) -> PyResult<Option<&'static str>> {
    let py = object.py();
    let methods = [
        (intern!(py, "is_conj"), CONJUGATED),
        (intern!(py, "is_neg"), NEGATED),
        (intern!(py, "_is_zerotensor"), ZEROS),
    ];
    for (name, why) in methods {
        if let Some(method) = object.attribute_opt(name)? {
            if method.call0()?.is_truthy()? {
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

/// The current stream of the table of an object's type.
#[cold]
pub(crate) fn current_stream(published: Published<'_, '_>, device: Device) -> Result<Stream> {
    published.current_stream(device).ok_or_else(|| failure(published.object().py()).into())
}

/// The error of a table that just failed; none if `__dlpack__` can be called for the reason.
#[cold]
fn after_failure(published: Published<'_, '_>) -> Result<()> {
    let (object, py) = (published.object(), published.object().py());
    through_pyo3(|| {
        let error = failure(py);
        let has_method = is_refusal(py, &error) && object.hasattr(intern!(py, "__dlpack__"))?;
        if has_method { Ok(()) } else { Err(error.into()) }
    })
}

/// Whether an object (of PyTorch or Paddle, or a tensor of ours made from one) requires grad. Runs Python code.
pub(crate) fn requires_grad(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    match path_of(object)? {
        Some(Path::Torch(torch)) => {
            if let Some(answer) = torch.requires_grad() {
                return Ok(answer);
            }
        }
        Some(Path::Own(_) | Path::Table(_)) => {}
        _ => return Ok(false),
    }
    if let Ok(own) = object.cast_exact::<TensorObject>() {
        return Ok(own.get().requires_grad);
    }
    // Some types refuse every question.
    Ok(unless_refused(object.py(), exporting(|| asked_for_grad(object)))?.unwrap_or(false))
}

fn asked_for_grad(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    let py = object.py();
    if let Some(answer) = object.attribute_opt(intern!(py, "requires_grad"))? {
        return Ok(answer.is_truthy()?);
    }
    match object.attribute_opt(intern!(py, "stop_gradient"))? {
        Some(stops) => Ok(!stops.is_truthy()?),
        None => Ok(false),
    }
}

/// Rejects writing to an object that requires grad.
#[inline(always)]
pub(crate) fn refuse_grad_to_write(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    refuse_by_type(object, "memory to write to")
}

/// Rejects reading an object that requires grad, because the result has none.
#[inline(always)]
pub(crate) fn refuse_grad(object: Borrowed<'_, '_, PyAny>) -> Result<()> {
    refuse_by_type(object, "an array without gradients")
}

#[inline(always)]
fn refuse_by_type(object: Borrowed<'_, '_, PyAny>, wanted: &str) -> Result<()> {
    match path_of(object)? {
        Some(Path::Torch(torch)) if torch.requires_grad() == Some(false) => Ok(()),
        Some(Path::Own(_) | Path::Table(_) | Path::Torch(_)) => refuse_by_table(object, wanted),
        _ => Ok(()),
    }
}

#[inline(never)]
fn refuse_by_table(object: Borrowed<'_, '_, PyAny>, wanted: &str) -> Result<()> {
    if !requires_grad(object)? {
        return Ok(());
    }
    Err(Error::requires_grad(wanted, &name_of(&object.get_type())))
}
