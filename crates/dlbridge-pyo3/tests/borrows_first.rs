//! The first borrow of a process, on a thread without the interpreter, beside another extension module that was
//! first: a table of zeros, which this program made.
//! Each program here is a process of its own, since the table is found once.
#![cfg(target_pointer_width = "64")]
#![allow(unsafe_code, reason = "a module that has a table is made of bytes")]

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge::Tensor;
use dlbridge_pyo3::{TensorObject, import};
use pyo3::Borrowed;
use pyo3::prelude::*;

/// The size of a table, and the place of the tree in it, in words (`ffi/borrow/shared.rs`).
const WORDS: usize = 16_448 / 8;
const TREE: usize = 4;

#[repr(align(64))]
struct Table([AtomicUsize; WORDS]);

static OTHER: Table = Table([const { AtomicUsize::new(0) }; WORDS]);

/// The first borrow of an extension module, if a thread without the GIL made it, fixed the module's
/// own table of borrows: writers in other modules did not see what this one kept.
#[test]
fn what_a_detached_thread_keeps_first_is_in_the_table_of_the_process() {
    Python::attach(|py| {
        // The number of the last borrow, above those of slots.
        OTHER.0[TREE + 1].store(256, Ordering::Relaxed);
        let (table, name) = (ptr::from_ref(&OTHER).cast_mut().cast(), c"dlbridge.borrows.5");
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
        names.set_item("dlbridge.borrows.5", capsule).expect("a dict");
        // No module of Python's is asked.
        let modules = py.import("sys").expect("sys").getattr("modules").expect("modules");
        let sys = modules.call_method1("pop", ("sys",)).expect("sys");
        let (object, kept) = py.detach(|| {
            let kept = Tensor::from(vec![1_i64, 2]).into_shared();
            (TensorObject::new(Tensor::from(kept.clone())), kept)
        });
        assert_eq!(OTHER.0[TREE].load(Ordering::Relaxed), 0, "no other module can have it");
        let object = Bound::new(py, object).expect("an object");
        assert_ne!(OTHER.0[TREE].load(Ordering::Relaxed), 0, "kept in Rust");
        modules.set_item("sys", sys).expect("put back");
        let imported = import(object.as_any().as_borrowed(), Default::default()).expect("read");
        drop((imported, kept, object));
        assert_eq!(OTHER.0[TREE].load(Ordering::Relaxed), 0, "dropped");
    });
}
