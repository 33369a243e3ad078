//! Python exceptions around calls of the library: those of the caller stay set, those of deleters and
//! exchange tables do not. In a Python that this program starts itself.
//! What a producer raises belongs to `producers.rs`.
#![cfg(unix)]
#![allow(unsafe_code, reason = "hosts a Python")]

#[path = "python/host.rs"]
mod host;

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use dlbridge::sys::{DLDeviceType, DLManagedTensorVersioned};
use dlbridge_capi::*;
use host::{Host, Table};

/// `fail()` of Python, which returns null with an exception set.
static FAIL: OnceLock<unsafe extern "C" fn()> = OnceLock::new();

fn fail() {
    // SAFETY: on the thread that started Python.
    unsafe { FAIL.get().expect("found first")() };
}

unsafe extern "C" fn release(_: *mut c_void) {
    fail();
}

/// A tensor whose release leaves an exception set.
fn export(device: i32) -> *mut TensorHandle {
    host::export(device, 0, Some(release))
}

fn managed() -> *mut DLManagedTensorVersioned {
    let mut managed = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_versioned(export(DLB_DEVICE_CPU), &mut managed) }, Status::Ok);
    managed
}

/// One interpreter, one thread: the parts run one after the other.
#[test]
fn exceptions_are_neither_lost_nor_left() {
    let host = match Host::start() {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    host.run("import numpy as np, sys\nsaid = []\nsys.unraisablehook = lambda u: said.append(u.exc_type)");
    let _ = FAIL.set(host.function("PyErr_NoMemory"));
    the_first_export_keeps_the_callers(&host);
    deleters_leave_none(&host);
    deleters_of_rejected_tensors_leave_none(&host);
    tables_leave_none(&host);
}

/// The class of exported tensors is made then.
fn the_first_export_keeps_the_callers(host: &Host) {
    let memory_error = host.eval("MemoryError");
    fail();
    let (mut object, mut capsule) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(export(DLB_DEVICE_CPU), &mut object) }, Status::Ok);
    assert!(host.raised(memory_error), "the caller's exception stays set");
    fail();
    // SAFETY: exported, and owned here.
    let status = unsafe { dlb_into_capsule(export(DLB_DEVICE_CPU), 1, &mut capsule) };
    assert_eq!(status, Status::Ok);
    assert!(host.raised(memory_error), "the caller's exception stays set");
    host.drop(memory_error);
    host.drop(object);
    host.drop(capsule);
    assert!(host.is_calm());
}

fn deleters_leave_none(host: &Host) {
    let import = |code| {
        let (object, mut tensor) = (host.eval(code), ptr::null_mut());
        // SAFETY: a live object, on the thread that started Python.
        assert_eq!(unsafe { dlb_from_python(object, ptr::null(), &mut tensor) }, Status::Ok);
        host.drop(object);
        tensor
    };
    let mut object = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(export(DLB_DEVICE_CPU), &mut object) }, Status::Ok);
    host.set("o", object);
    host.drop(object);
    host.run("said.clear()");
    let of_python = import("o");
    host.run("del o");
    // SAFETY: no wake function.
    let queue = unsafe { dlb_queue_new(None, ptr::null_mut()) };
    // SAFETY: given up.
    assert_eq!(unsafe { dlb_queue_release(queue, export(DLB_DEVICE_CPU)) }, Status::Ok);
    let calls: [(&str, &dyn Fn()); 5] = [
        // SAFETY: released once.
        ("dlb_release", &|| unsafe { dlb_release(export(DLB_DEVICE_CPU)) }),
        // SAFETY: the same.
        ("dlb_release of a Python object's", &|| unsafe { dlb_release(of_python) }),
        // SAFETY: the same.
        ("dlb_delete_versioned", &|| unsafe { dlb_delete_versioned(managed()) }),
        // SAFETY: a live queue.
        ("dlb_queue_drain", &|| assert_eq!(unsafe { dlb_queue_drain(queue) }, 1)),
        // SAFETY: given up.
        ("dlb_queue_close", &|| unsafe { dlb_queue_close(queue) }),
    ];
    for (name, call) in calls {
        call();
        assert!(host.is_calm(), "{name} leaves an exception set");
    }
    // Python's hook is told.
    assert!(host.truth("said == [MemoryError] * 4"), "said");
}

unsafe extern "C" fn give_broken(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let managed = managed();
    // SAFETY: exported, and owned here.
    unsafe { &mut *managed }.dl_tensor.ndim = -1;
    // SAFETY: a place of the caller.
    unsafe { out.write(managed) };
    0
}

/// A table whose tensors are rejected.
static BROKEN: Table = Table::new(give_broken, stream);

fn deleters_of_rejected_tensors_leave_none(host: &Host) {
    BROKEN.publish(host, "broken");
    host.run("class Broken:\n __dlpack_c_exchange_api__ = broken\nsaid.clear()");
    let (object, mut tensor) = (host.eval("Broken()"), ptr::null_mut());
    // SAFETY: a live object, on the thread that started Python.
    let status = unsafe { dlb_from_python(object, ptr::null(), &mut tensor) };
    assert_eq!(status, Status::Refused);
    assert!(host.is_calm(), "the deleter's exception stays set");
    assert!(host.truth("said == [MemoryError]"), "Python's hook is told");
    host.drop(object);
}

unsafe extern "C" fn give(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let mut managed = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_versioned(export(DLB_DEVICE_CUDA), &mut managed) }, Status::Ok);
    // SAFETY: a place of the caller.
    unsafe { out.write(managed) };
    fail();
    0
}

unsafe extern "C" fn stream(_: DLDeviceType, _: i32, _: *mut *mut c_void) -> c_int {
    fail();
    -1
}

/// A table that is wrong: it succeeds with an exception set.
static TABLE: Table = Table::new(give, stream);

fn tables_leave_none(host: &Host) {
    TABLE.publish(host, "table");
    host.run("class Gives:\n __dlpack_c_exchange_api__ = table\n def __dlpack__(self, **k): raise KeyError");
    let (object, mut tensor) = (host.eval("Gives()"), ptr::null_mut());
    // SAFETY: a live object, on the thread that started Python.
    assert_eq!(unsafe { dlb_from_python(object, ptr::null(), &mut tensor) }, Status::Ok);
    assert!(host.is_calm(), "a table's exception stays set");
    host.drop(object);
    // SAFETY: released once.
    unsafe { dlb_release(tensor) };
    assert!(host.is_calm());
}
