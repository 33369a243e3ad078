//! Objects whose type publishes an exchange table: importing them, the errors of those that a table rejects, and
//! refusing those that require grad.
//! Finding the table belongs to `types`, calling it to `ffi::published`, calling `__dlpack__` to `dlpack`.
//! Invariants: an object's Python code runs before its memory is imported, never after. A table that fails leads to an
//! exception, that of `__dlpack__` if the type has the method. Only objects with a table are asked whether they require
//! grad: the `__dlpack__` of all others that do raises an exception.
//!
//! PyTorch's table writes all C++ frames into its exception, which takes a thousand times as long
//! as an import. After the first failure, tensors are checked beforehand for the properties that
//! make the table fail. A program without such tensors does not pay for these checks.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::protocol::table::{CONJUGATED, NEGATED, ZEROS};
use dlbridge::sys::DLPackExchangeAPI;
use dlbridge::{Device, Tensor, TypeCode};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::{Borrowed, intern};

use crate::error::{error_of, unless_refused};
use crate::ffi::borrow;
use crate::ffi::callbacks::exporting;
use crate::ffi::published::{Gives, Published};
use crate::ffi::torch::{TorchTensor, Values, values};
use crate::interpreter::{Attributes, through_pyo3};
use crate::object::TensorObject;
use crate::stream::Stream;
use crate::types::{Path, loaded, name_of, path_of};
use crate::{Error, Result};

/// Imports an object through the table of its type; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_by_table(published: Published<'_, '_>) -> Result<Option<Tensor>> {
    import_with_values(published, |code| values(published, code))
}

/// As [`import_by_table`], if the function says that the memory that the table described has the values.
#[inline(always)]
fn import_with_values(
    published: Published<'_, '_>,
    values: impl FnOnce(TypeCode) -> Values,
) -> Result<Option<Tensor>> {
    let Some(gives) = published.gives() else { return Ok(None) };
    if is_expected_to_fail(published)? {
        return Ok(None);
    }
    let Some(tensor) = take(published, &gives)? else { return Ok(None) };
    match values(tensor.dtype().code) {
        Values::InMemory => Ok(Some(tensor)),
        Values::Elsewhere(why) => Err(Error::buffer(why)),
        Values::Unknown => {
            // The object's Python code may move or free the memory.
            drop(tensor);
            take_again(published, &gives)
        }
    }
}

/// Imports a tensor of PyTorch; `None` if `__dlpack__` must be called.
#[inline(always)]
pub(super) fn import_torch(
    torch: TorchTensor<'_, '_>,
    in_frame: bool,
) -> Result<Option<borrow::Borrowed>> {
    match torch.memory(in_frame)? {
        Some(memory) => Ok(Some(memory)),
        None => Ok(import_torch_by_table(torch)?.map(borrow::Borrowed::unborrowed)),
    }
}

#[cold]
#[inline(never)]
fn import_torch_by_table(torch: TorchTensor<'_, '_>) -> Result<Option<Tensor>> {
    import_with_values(torch.published(), |code| torch.values(code))
}

#[inline(always)]
fn take(published: Published<'_, '_>, gives: &Gives<'_, '_>) -> Result<Option<Tensor>> {
    match gives.tensor()? {
        Some(tensor) => Ok(Some(tensor)),
        None => after_failure(published).map(|()| None),
    }
}

/// Checks whether the memory of an object holds its values, then imports the memory that the
/// object has after its Python code has run.
#[cold]
fn take_again(published: Published<'_, '_>, gives: &Gives<'_, '_>) -> Result<Option<Tensor>> {
    if !resolved(published.object())? {
        return Ok(None);
    }
    take(published, gives)
}

/// Whether a tensor's memory holds the values of its object. An object that raises (`false`) is
/// imported by `__dlpack__`.
#[cold]
fn resolved(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
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
    published.current_stream(device).ok_or_else(|| failure(published.object()))
}

/// The table that failed for an object with a property that [`is_refused`] checks.
static FAILED: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());

/// Whether a table is known to reject an object.
#[inline(always)]
fn is_expected_to_fail(published: Published<'_, '_>) -> Result<bool> {
    if !ptr::eq(FAILED.load(Ordering::Relaxed), published.table()) {
        return Ok(false);
    }
    through_pyo3(|| is_refused(published.object()))
}

/// The error of a table that just failed; none if `__dlpack__` can be called for the reason.
#[cold]
fn after_failure(published: Published<'_, '_>) -> Result<()> {
    through_pyo3(|| judged(published))
}

fn judged(published: Published<'_, '_>) -> Result<()> {
    let object = published.object();
    let py = object.py();
    let error = failure(object);
    if !error.is_refusal(py) || !object.hasattr(intern!(py, "__dlpack__"))? {
        return Err(error);
    }
    if is_refused(object)? {
        FAILED.store(ptr::from_ref(published.table()).cast_mut(), Ordering::Relaxed);
    }
    Ok(())
}

/// The exception that the table raised; some tables fail without one.
#[cold]
fn failure(object: Borrowed<'_, '_, PyAny>) -> Error {
    let py = object.py();
    let error = PyErr::take(py).unwrap_or_else(|| {
        let kind = object.get_type();
        error_of::<PyBufferError>(format!(
            "{kind}: expected a tensor, but its exchange table failed without a reason"
        ))
    });
    Error::from(error)
}

/// Whether PyTorch's table fails for a tensor; `false` for an object without these properties.
#[cold]
fn is_refused(object: Borrowed<'_, '_, PyAny>) -> Result<bool> {
    let py = object.py();
    let is_true = |name| match object.attribute_opt(name)? {
        Some(found) => found.is_truthy(),
        None => Ok(false),
    };
    // First what PyTorch itself refuses in the least time.
    if unless_refused(py, has_no_storage(object))? == Some(true) {
        return Ok(true);
    }
    for name in [intern!(py, "is_meta"), intern!(py, "is_quantized"), intern!(py, "is_nested")] {
        if unless_refused(py, is_true(name))? == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a tensor of PyTorch has no storage: sparse, of MKL-DNN, or of a transform (`vmap`).
fn has_no_storage(object: Borrowed<'_, '_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    let Some(module) = loaded(intern!(py, "torch._C"))? else {
        return Ok(false);
    };
    let has_storage = module.call_method1(intern!(py, "_has_storage"), (object,))?;
    Ok(!has_storage.is_truthy()?)
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
