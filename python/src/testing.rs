//! What tests call in place of an extension; in no user's wheel, only with the feature `testing`.
//! Invariants: no Python code runs while memory is borrowed. The functions stay attached while they wait.
#![allow(unsafe_code, reason = "borrowing is unsafe")]

use std::cell::RefCell;
use std::thread;

use dlbridge_pyo3::{PyTensor, Result, with_borrowed};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Adds the functions to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(_borrow, module)?)?;
    module.add_function(wrap_pyfunction!(_keep, module)?)?;
    module.add_function(wrap_pyfunction!(_drop_on_threads, module)?)
}

/// Describe an object's borrowed descriptor, as a dict. No tensor is owned, so none is released.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn _borrow<'py>(x: &Bound<'py, PyAny>) -> Result<Bound<'py, PyDict>> {
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

thread_local! {
    static KEPT: RefCell<Vec<PyTensor>> = const { RefCell::new(Vec::new()) };
}

/// Keep a tensor until this thread ends, which is after Python has deleted the thread's state.
#[pyfunction]
#[pyo3(signature = (x, /))]
fn _keep(x: PyTensor) {
    KEPT.with_borrow_mut(|kept| kept.push(x));
}

/// Drop each tensor on a thread of its own, and wait for all of them without detaching.
#[pyfunction]
#[pyo3(signature = (xs, /))]
fn _drop_on_threads(xs: Vec<PyTensor>) -> usize {
    let threads: Vec<_> =
        xs.into_iter().map(|x| thread::spawn(move || x.shape().iter().sum::<i64>())).collect();
    threads.into_iter().filter_map(|thread| thread.join().ok()).map(|sum| sum as usize).sum()
}
