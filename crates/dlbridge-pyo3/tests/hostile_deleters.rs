//! Deleters that do something wrong while Python looks on.
//! How often a deleter runs in Rust alone is in `releases.rs` of `dlbridge`.
#![allow(unsafe_code, reason = "deleters are C functions")]

mod common;

use std::cell::Cell;
use std::ffi::{c_int, c_void};

use common::{empty_table, object_with};
use dlbridge::Tensor;
use dlbridge::sys::DLManagedTensorVersioned;
use dlbridge_pyo3::{ImportOptions, PyTensor, TensorObject, import};
use dlbridge_testing::{Foreign, Releases};
use pyo3::exceptions::{PyBufferError, PyKeyError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

type Deleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

thread_local! {
    /// How often `raising_deleter` ran, and whether it ever saw an exception.
    static DELETED: Cell<(usize, bool)> = const { Cell::new((0, false)) };
    /// The deleter that `raising_deleter` stands before.
    static OWN: Cell<Option<Deleter>> = const { Cell::new(None) };
}

/// A deleter written as a careless extension would: it leaves an exception behind.
unsafe extern "C" fn raising_deleter(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tests delete with the interpreter attached.
    let saw = !unsafe { ffi::PyErr_Occurred() }.is_null();
    let (count, seen) = DELETED.get();
    DELETED.set((count + 1, seen || saw));
    // SAFETY: as above.
    let py = unsafe { Python::assume_attached() };
    PyKeyError::new_err("of the deleter").restore(py);
    // SAFETY: called with its own tensor, once for each time that this one is called.
    unsafe { OWN.get().expect("the test keeps it")(tensor) };
}

/// A tensor with `raising_deleter`.
fn careless(foreign: Foreign) -> *mut DLManagedTensorVersioned {
    let managed = foreign.into_versioned();
    // SAFETY: owned by the test.
    OWN.set(unsafe { &mut *managed }.deleter.replace(raising_deleter));
    DELETED.set((0, false));
    managed
}

fn pair() -> Foreign {
    Foreign::new(&[2], &[1.0_f32, 2.0])
}

fn careless_tensor() -> (Tensor, Releases) {
    let foreign = pair();
    let releases = foreign.releases();
    // SAFETY: legal, and exported.
    (unsafe { Tensor::from_raw(careless(foreign)) }.expect("legal"), releases)
}

/// A Python object over a tensor with `raising_deleter`.
fn object_of_a_careless_producer(py: Python<'_>) -> (Py<TensorObject>, Releases) {
    let (tensor, releases) = careless_tensor();
    (Py::new(py, TensorObject::new(tensor)).expect("an object"), releases)
}

unsafe extern "C" fn gives_a_broken_one(
    _: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    // SAFETY: a place to write to.
    unsafe { out.write(careless(pair().ndim(-1))) };
    0
}

unsafe extern "C" fn makes_nothing(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
    -1
}

#[track_caller]
fn calm(py: Python<'_>) {
    assert!(PyErr::take(py).is_none(), "no exception stays set");
}

#[test]
fn a_deleter_leaves_no_exception_behind_an_object() {
    Python::attach(|py| {
        let (object, releases) = object_of_a_careless_producer(py);
        drop(object.into_bound(py));
        calm(py);
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "the object is gone");
    });
}

#[test]
fn a_deleter_neither_sees_nor_changes_a_pending_exception() {
    Python::attach(|py| {
        let (object, releases) = object_of_a_careless_producer(py);
        let object = object.into_bound(py);
        PyTypeError::new_err("on its way").restore(py);
        drop(object);
        let kept = PyErr::take(py).expect("it is still on its way");
        assert!(kept.is_instance_of::<PyTypeError>(py), "{kept}");
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "the object is gone");
    });
}

#[test]
fn the_deleter_of_a_rejected_tensor_leaves_no_exception() {
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_from_py_object_no_sync = Some(gives_a_broken_one);
        let object = object_with(py, table);
        let result = import(object.as_borrowed(), ImportOptions::default()).map(drop);
        calm(py);
        assert!(PyErr::from(result.expect_err("broken")).is_instance_of::<PyBufferError>(py));
        assert_eq!(DELETED.get(), (1, false));
    });
}

#[test]
fn the_deleter_of_a_tensor_that_a_table_refuses_leaves_no_exception() {
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_to_py_object_no_sync = Some(makes_nothing);
        let (tensor, releases) = careless_tensor();
        let result = PyTensor::from(tensor).to_caller(&object_with(py, table)).map(drop);
        calm(py);
        assert!(PyErr::from(result.expect_err("refused")).is_instance_of::<PyBufferError>(py));
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "refused");
    });
}
