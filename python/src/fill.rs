//! `fill`: writes to a tensor's memory in place, at the caller's request.
//! Invariant: the interpreter is attached while the memory is written.
#![allow(unsafe_code, reason = "writes memory that Python shares")]

use dlbridge::Tensor;
use dlbridge_pyo3::Result;
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;

use crate::arguments::{Number, Ours};
use crate::create::no_numbers;
use crate::dispatch::with_element;

/// Write one number to every element, in Rust.
#[pyfunction]
#[pyo3(signature = (tensor, value, /))]
pub(crate) fn fill(tensor: Ours<'_>, value: Number) -> Result<()> {
    let tensor = tensor.0.get().to_write()?;
    let dtype = tensor.dtype();
    with_element!(dtype, |T| fill_with(tensor, value.checked::<T>().ok_or_else(|| {
        let message = format!("value: expected a number within {dtype}, found {value}");
        PyOverflowError::new_err(message)
    })?), otherwise Err(no_numbers(dtype)))
}

fn fill_with<T: dlbridge::Element>(tensor: &Tensor, value: T) -> Result<()> {
    // SAFETY: the caller requests the write, as with any in-place operation of an array library,
    // and ensures that no other thread uses the memory during it (SAFETY.md, T6). The GIL keeps
    // Python code from doing so, except in a free-threaded build.
    let mut view = unsafe { tensor.view_mut_unchecked::<T>() }?;
    view.fill(value);
    Ok(())
}
