//! Writing to a tensor's memory from Rust, at a Python user's word.
//! Memory that Rust has to itself needs nothing of this (see `Tensor::view_mut`).
//! Invariant: the interpreter is attached while the memory is written.
#![allow(unsafe_code, reason = "writes memory that Python shares")]

use dlbridge::Tensor;
use dlbridge_pyo3::{Result, TensorObject};
use pyo3::prelude::*;

use crate::create::{Number, no_numbers};
use crate::dispatch::with_element;

/// Write one number to every element, in Rust.
#[pyfunction]
#[pyo3(signature = (tensor, value, /))]
pub(crate) fn fill(tensor: &Bound<'_, TensorObject>, value: Number) -> Result<()> {
    let tensor = tensor.get().to_write()?;
    let dtype = tensor.dtype();
    with_element!(dtype, |T| fill_with(tensor, value.to_element::<T>()),
        otherwise Err(no_numbers(dtype)))
}

fn fill_with<T: dlbridge::Element>(tensor: &Tensor, value: T) -> Result<()> {
    // SAFETY: the caller asks for the write, as with any in-place operation of an array library,
    // and answers for other threads that use the same memory meanwhile (SAFETY.md, T6): Python's
    // lock keeps Python code from it, where there is one.
    let mut view = unsafe { tensor.view_mut_unchecked::<T>() }?;
    view.fill(value);
    Ok(())
}
