//! `fill`: writes to a tensor's memory in place, at the caller's request.
//! Invariant: the interpreter is attached while the memory is written, and no other argument of a
//! function in Rust borrows it.

use dlbridge::{Element, Parts, ViewMut};
use dlbridge_pyo3::{Error, PyTensorMut, Result};
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
    let Ours(object) = tensor;
    let dtype = object.get().to_write()?;
    with_element!(dtype, |T| {
        let value = value.checked::<T>().ok_or_else(|| {
            let message = format!("value: expected a number within {dtype}, found {value}");
            Error::Python(PyOverflowError::new_err(message))
        })?;
        fill_with(py, object.extract()?, value)
    }, otherwise Err(no_numbers(dtype)))
}

fn fill_with<T: Element>(py: Python<'_>, mut tensor: PyTensorMut<T>, value: T) -> Result<()> {
    // Elements along an axis of stride 0 are one element, which is written once.
    let strides = tensor.strides().to_vec();
    let mut view = tensor.view_mut();
    for (axis, stride) in strides.into_iter().enumerate() {
        if stride == 0 && view.shape()[axis] > 1 {
            view = view.slice(axis, ..1)?;
        }
    }
    fill_parts(py, view, value)
}

/// Writes in parts, with a look at signals after each.
fn fill_parts<T: Element>(py: Python<'_>, mut view: ViewMut<'_, T>, value: T) -> Result<()> {
    if view.len() > BETWEEN_SIGNALS {
        let shape = view.shape();
        let axis = shape.iter().position(|&extent| extent > 1).expect("it has many elements");
        let middle = shape[axis] as usize / 2;
        fill_parts(py, view.reborrow().slice(axis, ..middle)?, value)?;
        return fill_parts(py, view.slice(axis, middle..)?, value);
    }
    view.fill(value);
    Ok(py.check_signals()?)
}
