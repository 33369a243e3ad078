//! Many borrows at once: none is refused, and a writer finds the few that matter.

use dlbridge::Tensor;
use dlbridge_pyo3::{ImportOptions, PyTensor, PyTensorMut, import};
use pyo3::prelude::*;

const MANY: usize = 40_000;

fn zeros(py: Python<'_>, len: usize) -> Bound<'_, PyAny> {
    py.import("numpy").and_then(|numpy| numpy.call_method1("zeros", (len,))).expect("NumPy")
}

fn may_write(array: &Bound<'_, PyAny>) -> bool {
    array.extract::<PyTensorMut<f64>>().is_ok()
}

fn kept(object: &Bound<'_, PyAny>) -> Tensor {
    import(object.as_borrowed(), ImportOptions::default()).expect("readable").tensor
}

#[test]
fn many_arguments_refuse_writers_of_their_memory_alone() {
    Python::attach(|py| {
        let (many, other) = (zeros(py, 3), zeros(py, 3));
        let mut borrows: Vec<PyTensor> =
            (0..MANY).map(|_| many.extract().expect("readable")).collect();
        assert!(may_write(&other) && !may_write(&many));
        // Also beyond the slots, a writer and its readers exclude each other.
        let to_write: PyTensorMut<f64> = other.extract().expect("writable");
        other.extract::<PyTensor>().expect_err("it is to be written");
        assert!(!may_write(&other));
        borrows.push(many.extract().expect("readable"));
        drop(to_write);
        assert!(may_write(&other));
        // In any order.
        while borrows.len() > 1 {
            borrows.swap_remove(borrows.len() * 7 / 13);
            assert!(borrows.len() % 1000 != 0 || !may_write(&many));
        }
        drop(borrows);
        assert!(may_write(&other) && may_write(&many));
    });
}

#[test]
fn many_kept_tensors_refuse_writers_of_their_memory_alone() {
    Python::attach(|py| {
        let base = zeros(py, MANY * 4);
        let part = |at: usize| {
            base.get_item(pyo3::types::PySlice::new(py, at as isize * 4, at as isize * 4 + 4, 1))
                .expect("a part")
        };
        // Each second part of four.
        let mut tensors: Vec<_> = (0..MANY).step_by(2).map(|at| Some(kept(&part(at)))).collect();
        for at in (0..MANY).step_by(997) {
            assert_eq!(may_write(&part(at)), at % 2 == 1, "{at}");
        }
        assert!(!may_write(&base));
        for at in (0..tensors.len()).rev().step_by(3) {
            tensors[at] = None;
        }
        for at in (0..MANY).step_by(997) {
            let is_kept = at % 2 == 0 && tensors[at / 2].is_some();
            assert_eq!(may_write(&part(at)), !is_kept, "{at}");
        }
        drop(tensors);
        assert!(may_write(&base));
    });
}
