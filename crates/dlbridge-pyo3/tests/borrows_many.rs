//! More borrows than the table has slots for. In a process of its own, since it refuses all writers.

use dlbridge_pyo3::{PyTensor, PyTensorMut};
use pyo3::prelude::*;

#[test]
fn more_borrows_than_slots_refuse_writers_until_there_are_fewer() {
    Python::attach(|py| {
        let numpy = py.import("numpy").expect("NumPy");
        let zeros = || numpy.call_method1("zeros", (3,)).expect("an array");
        let may_write = |array: &Bound<'_, PyAny>| array.extract::<PyTensorMut<f64>>().is_ok();
        let (many, other) = (zeros(), zeros());
        let borrows: Vec<PyTensor> =
            (0..(1 << 15) + 10).map(|_| many.extract().expect("readable")).collect();
        assert!(!may_write(&other), "the memory of some borrows is not known");
        drop(borrows);
        assert!(may_write(&other) && may_write(&many));
    });
}
