//! Tensors that are dropped while another thread has the GIL and waits: for that thread, or a lock.
//! The ways that Python code can take there are in `python/tests/test_release.py`.
#![allow(unsafe_code, reason = "deleters are C functions")]

mod common;

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use common::Watchdog;
use dlbridge::Tensor;
use dlbridge::sys::DLManagedTensorVersioned;
use dlbridge_pyo3::PyTensor;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict};
use rayon::prelude::*;

/// Makes arrays over a bytearray, which cannot be resized as long as there is one.
const PRODUCERS: &[(&str, &str)] = &[
    ("numpy", "numpy.frombuffer(block, 'u1')"),
    ("numpy", "numpy.frombuffer(block, 'u1').view(type('Array', (numpy.ndarray,), {}))"),
    ("numpy", "numpy.frombuffer(block, 'u1').__dlpack__(max_version=(1, 0))"),
    ("numpy", "numpy.frombuffer(block, 'u1').__dlpack__()"),
    ("torch", "torch.frombuffer(block, dtype=torch.uint8)"),
    ("torch", "torch.frombuffer(block, dtype=torch.uint8).__dlpack__()"),
    ("pyarrow", "pyarrow.Array.from_buffers(pyarrow.uint8(), 8, [None, pyarrow.py_buffer(block)])"),
    ("jax.dlpack", "jax.dlpack.from_dlpack(numpy.frombuffer(block, 'u1'))"),
    ("builtins", "memoryview(block)"),
    ("builtins", "block"),
];

/// Lets `work` loose on tensors over each producer's memory. Afterwards no tensor is left.
#[track_caller]
fn with_each_producer(test: &str, work: impl Fn(Python<'_>, Vec<PyTensor>)) {
    // Other tests would hold the GIL while they import frameworks.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock();
    Python::attach(|py| {
        for (module, code) in PRODUCERS {
            let names = PyDict::new(py);
            let block = PyByteArray::new(py, &[7; 4096]);
            names.set_item("block", &block).expect("a dict takes it");
            for module in ["numpy", module] {
                let import = format!("import {module}");
                let code = std::ffi::CString::new(import).expect("no zero in it");
                if py.run(&code, Some(&names), None).is_err() {
                    eprintln!("{module} is not installed");
                }
            }
            let code = std::ffi::CString::new(*code).expect("no zero in it");
            let make = || py.eval(&code, Some(&names), None);
            let Ok(_) = make() else { continue };
            let tensor = |_| make().expect("as before").extract().expect("a tensor");
            let watchdog = Watchdog::of(test);
            work(py, (0..64).map(tensor).collect());
            drop(watchdog);
            // Any import releases what waits.
            drop(PyBytes::new(py, b"x").extract::<PyTensor>().expect("a tensor"));
            // JAX copies, or keeps what it has seen for a while.
            let resized = block.resize(5000);
            assert!(resized.is_ok() || module.starts_with("jax"), "{test}, {code:?}: {resized:?}");
        }
    });
}

/// Dropping a tensor waited for the GIL, so a thread that held the GIL deadlocked when it joined
/// the dropping thread or held a lock.
#[test]
fn rayon_sums_a_vector_of_tensors_under_the_gil() {
    with_each_producer("rayon", |_, tensors| {
        assert!(tensors.into_par_iter().map(|tensor| tensor.len()).sum::<usize>() >= 64);
    });
}

#[test]
fn a_thread_that_is_joined_under_the_gil_drops_a_tensor() {
    with_each_producer("join", |_, tensors| {
        for tensor in tensors {
            thread::spawn(move || drop(tensor)).join().expect("no panic");
        }
    });
}

#[test]
fn a_tensor_is_dropped_under_a_lock_that_a_thread_with_the_gil_waits_for() {
    with_each_producer("lock", |_, tensors| {
        let lock = Arc::new(Mutex::new(()));
        let begun = Arc::new(Barrier::new(2));
        let thread = thread::spawn({
            let (lock, begun) = (Arc::clone(&lock), Arc::clone(&begun));
            move || {
                let guard = lock.lock().expect("no panic");
                begun.wait();
                drop(tensors);
                drop(guard);
            }
        });
        begun.wait();
        drop(lock.lock().expect("no panic"));
        thread.join().expect("no panic");
    });
}

#[test]
fn a_detached_thread_drops_tensors() {
    with_each_producer("detach", |py, tensors| py.detach(|| drop(tensors)));
}

#[test]
fn whatever_became_of_a_tensor_is_dropped_under_the_gil() {
    with_each_producer("kinds", |_, tensors| {
        for (index, tensor) in tensors.into_iter().enumerate() {
            let tensor = tensor.into_inner();
            let drop_it: Box<dyn FnOnce() + Send> = match index % 5 {
                0 => Box::new(|| drop(tensor)),
                1 => {
                    let first = tensor.into_shared();
                    let second = Tensor::from(first.clone());
                    Box::new(|| drop((first, second)))
                }
                2 => {
                    let first = tensor.into_shared().into_inner().expect("the only handle");
                    Box::new(|| drop(first))
                }
                3 => {
                    let shared = Tensor::from(tensor.into_frozen());
                    Box::new(|| drop(shared))
                }
                _ => {
                    let raw = tensor.into_raw().expose_provenance();
                    let raw = move || {
                        std::ptr::with_exposed_provenance_mut::<DLManagedTensorVersioned>(raw)
                    };
                    // SAFETY: exported just now.
                    Box::new(move || unsafe { dlbridge::ffi::release_raw(raw()) })
                }
            };
            thread::spawn(drop_it).join().expect("no panic");
        }
    });
}
