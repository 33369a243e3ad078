//! Drops tensors on threads that are not attached to the interpreter; private, for tests.
//! Invariant: the functions stay attached while they wait.

use std::cell::RefCell;
use std::thread;

use dlbridge_pyo3::PyTensor;
use pyo3::prelude::*;

thread_local! {
    static KEPT: RefCell<Vec<PyTensor>> = const { RefCell::new(Vec::new()) };
}

/// Keep a tensor until this thread ends, which is after Python has deleted the thread's state.
#[pyfunction]
#[pyo3(signature = (x, /))]
pub(crate) fn _keep(x: PyTensor) {
    KEPT.with_borrow_mut(|kept| kept.push(x));
}

/// Drop each tensor on a thread of its own, and wait for all of them without detaching.
#[pyfunction]
#[pyo3(signature = (xs, /))]
pub(crate) fn _drop_on_threads(xs: Vec<PyTensor>) -> usize {
    let threads: Vec<_> =
        xs.into_iter().map(|x| thread::spawn(move || x.shape().iter().sum::<i64>())).collect();
    threads.into_iter().filter_map(|thread| thread.join().ok()).map(|sum| sum as usize).sum()
}
