//! The class of tensors, when several threads need it first. A process of its own: this happens once.

#[path = "common/watchdog.rs"]
mod watchdog;

use std::sync::Barrier;
use std::thread;

use dlbridge_pyo3::PyTensor;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use watchdog::Watchdog;

#[test]
fn threads_that_need_the_class_first_all_get_buffers() {
    const THREADS: usize = 8;
    let _watchdog = Watchdog::of("first use");
    Python::initialize();
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                start.wait();
                Python::attach(|py| {
                    let tensor = PyTensor::new(vec![1_u8, 2, 3]);
                    let object = tensor.into_pyobject(py).expect("an object");
                    let view = PyMemoryView::from(&object.into_any()).expect("a buffer");
                    let bytes: Vec<u8> = view.call_method0("tobytes")?.extract()?;
                    assert_eq!(bytes, [1, 2, 3]);
                    PyResult::Ok(())
                })
                .expect("no exception");
            });
        }
    });
}
