//! The first borrow of a process, on a thread without the interpreter, beside another extension module that was
//! first: functions of a table, which this program has.
//! Each program here is a process of its own, since the table is found once.
#![allow(unsafe_code, reason = "a module publishes its functions in a capsule")]

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge::Tensor;
use dlbridge::ffi::Bytes;
use dlbridge_pyo3::{TensorObject, import};
use pyo3::Borrowed;
use pyo3::prelude::*;

/// The functions of a table (`ffi/borrow/own.rs`). This one counts what is kept.
#[repr(C)]
struct Functions {
    version: usize,
    read: extern "C" fn(&Bytes, *mut c_void) -> usize,
    write: extern "C" fn(&Bytes, *mut c_void) -> usize,
    keep: extern "C" fn(&Bytes, usize) -> usize,
    end: extern "C" fn(usize, usize),
    has_writers: extern "C" fn() -> bool,
}

static OTHER: Functions = Functions { version: 7, read, write: read, keep, end, has_writers };
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Where the kept bytes begin, of which the numbers are four times the addresses.
static START: AtomicUsize = AtomicUsize::new(0);
const ARGUMENT: usize = 64;

extern "C" fn read(_: &Bytes, _: *mut c_void) -> usize {
    ARGUMENT
}

extern "C" fn keep(bytes: &Bytes, of: usize) -> usize {
    assert!(of == 0 || of == ARGUMENT, "{of}");
    KEPT.fetch_add(1, Ordering::Relaxed);
    START.store(bytes.start, Ordering::Relaxed);
    bytes.start << 2
}

extern "C" fn end(number: usize, start: usize) {
    if number != ARGUMENT {
        assert_eq!(number, start << 2, "the number that `keep` gave");
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

extern "C" fn has_writers() -> bool {
    false
}

fn kept() -> usize {
    KEPT.load(Ordering::Relaxed)
}

/// The first borrow of an extension module, if a thread without the GIL made it, fixed the module's
/// own table of borrows: writers in other modules did not see what this one kept.
#[test]
fn what_a_detached_thread_keeps_first_is_in_the_table_of_the_process() {
    Python::attach(|py| {
        let (table, name) = (ptr::from_ref(&OTHER).cast_mut().cast(), c"dlbridge.borrows");
        // SAFETY: a static table, a static name, and nothing to release.
        let capsule = unsafe { pyo3::ffi::PyCapsule_New(table, name.as_ptr(), None) };
        // SAFETY: a new reference, or null with an exception set.
        let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.expect("a capsule");
        // SAFETY: attached.
        let interpreter = unsafe { pyo3::ffi::PyInterpreterState_Get() };
        // SAFETY: the interpreter of this thread.
        let names = unsafe { pyo3::ffi::PyInterpreterState_GetDict(interpreter) };
        // SAFETY: a dict that lives as long as the interpreter.
        let names = unsafe { Borrowed::from_ptr(py, names) };
        names.set_item("dlbridge.borrows", capsule).expect("a dict");
        // No module of Python's is asked.
        let modules = py.import("sys").expect("sys").getattr("modules").expect("modules");
        let sys = modules.call_method1("pop", ("sys",)).expect("sys");
        let (object, rust) = py.detach(|| {
            let rust = Tensor::from(vec![1_i64, 2]).into_shared();
            let gone = Tensor::from(vec![1_i64]).into_shared();
            drop((TensorObject::new(Tensor::from(gone.clone())), gone));
            (TensorObject::new(Tensor::from(rust.clone())), rust)
        });
        assert_eq!(kept(), 0, "no other module can have it");
        let object = Bound::new(py, object).expect("an object");
        assert_eq!(kept(), 1, "kept in Rust");
        assert_eq!(START.load(Ordering::Relaxed), rust.data_ptr().addr());
        modules.set_item("sys", sys).expect("put back");
        let imported = import(object.as_any().as_borrowed(), Default::default()).expect("read");
        assert_eq!(kept(), 2);
        drop((imported, rust, object));
        assert_eq!(kept(), 0, "dropped");
    });
}
