//! `_borrow`: the descriptor that an object's memory is borrowed by for a call; private, for tests.
//! Invariant: no Python code runs while the memory is borrowed.
#![allow(unsafe_code, reason = "borrowing is unsafe")]

use dlbridge_pyo3::{Result, with_borrowed};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Describe an object's borrowed descriptor, as a dict. No tensor is owned, so none is released.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn _borrow<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
    // SAFETY: the closure runs no Python code, and by SAFETY.md, T12, no other thread moves the
    // memory.
    let borrowed = unsafe {
        with_borrowed(x.as_borrowed(), |tensor| {
            let (shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
            let dtype = tensor.dtype().to_string();
            Ok((shape, strides, dtype, tensor.is_read_only(), tensor.data_ptr().addr()))
        })
    };
    let (shape, strides, dtype, readonly, data_ptr) = borrowed?;
    let facts = PyDict::new(x.py());
    facts.set_item("shape", shape)?;
    facts.set_item("strides", strides)?;
    facts.set_item("dtype", dtype)?;
    facts.set_item("readonly", readonly)?;
    facts.set_item("data_ptr", data_ptr)?;
    Ok(facts)
}
