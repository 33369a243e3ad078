//! `fill`: writes to a tensor's memory in place, at the caller's request.
//! Invariant: the interpreter is attached while the memory is written.
#![allow(unsafe_code, reason = "writes memory that Python shares")]

use dlbridge::{ArcTensor, Element};
use dlbridge_pyo3::Result;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::arguments::{Number, Ours};
use crate::create::no_numbers;
use crate::dispatch::with_element;

/// The number of elements between two looks at signals.
const BETWEEN_SIGNALS: usize = 1 << 22;

/// Write one number to every element, in Rust.
#[pyfunction]
#[pyo3(signature = (tensor, value, /))]
pub(crate) fn fill(py: Python<'_>, tensor: Ours<'_>, value: Number) -> Result<()> {
    let object = tensor.0.get();
    let tensor = object.to_write()?;
    let dtype = tensor.dtype();
    // Elements along an axis of stride 0 are one element, which is written once.
    let once = tensor.strides().iter().zip(tensor.shape()).enumerate();
    let mut once = once.filter(|&(_, (&stride, &extent))| stride == 0 && extent > 1);
    let part = once.try_fold(object.share().into_shared(), |part, (axis, _)| part.slice(axis, ..1));
    let part = part?;
    with_element!(dtype, |T| fill_with(py, &part, value.checked::<T>().ok_or_else(|| {
        let message = format!("value: expected a number within {dtype}, found {value}");
        PyOverflowError::new_err(message)
    })?), otherwise Err(no_numbers(dtype)))
}

/// Writes in parts, with a look at signals after each.
fn fill_with<T: Element>(py: Python<'_>, tensor: &ArcTensor, value: T) -> Result<()> {
    if tensor.len() > BETWEEN_SIGNALS {
        let (shape, axes) = (tensor.shape(), 0..tensor.rank());
        let (axis, extent) = axes
            .map(|axis| (axis, shape[axis] as usize))
            .find(|it| it.1 > 1)
            .expect("it has many elements");
        fill_with(py, &tensor.slice(axis, ..extent / 2)?, value)?;
        return fill_with(py, &tensor.slice(axis, extent / 2..)?, value);
    }
    // SAFETY: the caller requests the write, as with any in-place operation of an array library,
    // and ensures that no other thread uses the memory during it (SAFETY.md, T6). The GIL keeps
    // Python code from doing so, except in a free-threaded build.
    let mut view = unsafe { dlbridge::ffi::view_mut_unchecked::<T>(tensor) }?;
    view.fill(value);
    Ok(py.check_signals()?)
}
