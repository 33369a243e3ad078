//! What several test binaries use: a class's exchange table, calls through it, and an end for tests that hang.
#![allow(unsafe_code, reason = "calling a table of C functions is unsafe by nature")]
#![allow(dead_code, reason = "each binary uses a part of it")]

use std::ffi::{c_int, c_void};
use std::process::abort;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use std::{mem, ptr, thread};

use dlbridge::Tensor;
use dlbridge::sys::{
    DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLPackVersion, DLTensor,
};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// The table that an object's type publishes.
pub(crate) fn table_of(object: &Bound<'_, PyAny>) -> &'static DLPackExchangeAPI {
    let attribute = object.get_type().getattr("__dlpack_c_exchange_api__").expect("it has one");
    let capsule = attribute.cast_into::<PyCapsule>().expect("a capsule");
    let table = capsule.pointer_checked(Some(c"dlpack_exchange_api")).expect("of that name");
    // SAFETY: a table lives as long as the process (DLPack 1.2).
    unsafe { table.cast::<DLPackExchangeAPI>().as_ref() }
}

/// Takes an owning tensor of `object` through `table`.
pub(crate) fn take(table: &DLPackExchangeAPI, object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    let from_object = table.managed_tensor_from_py_object_no_sync.expect("DLPack demands it");
    let mut tensor = ptr::null_mut();
    // SAFETY: an object, and a place to write to; the table is of this library, which checks types.
    match unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) } {
        // SAFETY: given to us by the table.
        0 => Ok(unsafe { Tensor::from_raw(tensor) }.expect("our own exports pass the gate")),
        _ => Err(PyErr::take(object.py()).expect("a failure sets an exception")),
    }
}

/// Borrows the descriptor of `object` through `table`.
pub(crate) fn borrow(table: &DLPackExchangeAPI, object: &Bound<'_, PyAny>) -> PyResult<DLTensor> {
    let borrow = table.dltensor_from_py_object_no_sync.expect("this class has one");
    let mut descriptor = mem::MaybeUninit::<DLTensor>::uninit();
    // SAFETY: as for `take`.
    match unsafe { borrow(object.as_ptr().cast(), descriptor.as_mut_ptr()) } {
        // SAFETY: written by the call that succeeded.
        0 => Ok(unsafe { descriptor.assume_init() }),
        _ => Err(PyErr::take(object.py()).expect("a failure sets an exception")),
    }
}

/// A table whose only callback, the one that DLPack requires, fails; for as long as the process lives.
pub(crate) fn empty_table() -> &'static mut DLPackExchangeAPI {
    unsafe extern "C" fn fails(_: *mut c_void, _: *mut *mut DLManagedTensorVersioned) -> c_int {
        -1
    }
    Box::leak(Box::new(DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion::CURRENT,
            prev_api: ptr::null_mut(),
        },
        managed_tensor_allocator: None,
        managed_tensor_from_py_object_no_sync: Some(fails),
        managed_tensor_to_py_object_no_sync: None,
        dltensor_from_py_object_no_sync: None,
        current_work_stream: None,
    }))
}

/// A class with this table and nothing else, and an object of it. Both live as long as the process,
/// so that no other class comes to stand at the same address.
pub(crate) fn object_with<'py>(
    py: Python<'py>,
    table: &'static DLPackExchangeAPI,
) -> Bound<'py, PyAny> {
    let capsule = new_capsule(py, ptr::from_ref(table).cast_mut().cast());
    let members = pyo3::types::PyDict::new(py);
    members.set_item("__dlpack_c_exchange_api__", capsule).expect("a dict takes it");
    let kind = py.get_type::<pyo3::types::PyType>();
    let class = kind.call1(("Foreign", (), members)).expect("a class");
    mem::forget(class.clone());
    class.call0().expect("an object")
}

fn new_capsule(py: Python<'_>, table: *mut c_void) -> Bound<'_, PyAny> {
    let name = c"dlpack_exchange_api".as_ptr();
    // SAFETY: not null, a static name, and nothing to release.
    let capsule = unsafe { pyo3::ffi::PyCapsule_New(table, name, None) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.expect("a capsule")
}

/// Aborts the process unless it is dropped within a minute.
pub(crate) struct Watchdog {
    _alive: Sender<()>,
}

impl Watchdog {
    pub(crate) fn of(test: &str) -> Self {
        let (alive, dropped) = mpsc::channel::<()>();
        let test = test.to_owned();
        thread::spawn(move || {
            if dropped.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{test}: hangs");
                abort();
            }
        });
        Self { _alive: alive }
    }
}
