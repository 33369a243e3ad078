//! Classes that several threads need first. A process of its own: this happens once.

mod common;

use std::sync::Barrier;
use std::thread;

use common::Watchdog;
use dlbridge::Tensor;
use dlbridge_pyo3::{ExportDlpack, PyTensor, Result, dlpack_methods};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// A function that makes a class, if there is none yet, and an object.
type Make = fn(Python<'_>) -> PyResult<Bound<'_, PyAny>>;

macro_rules! classes {
    ($($name:ident)*) => {
        $(
            #[pyclass(frozen)]
            struct $name;

            impl ExportDlpack for $name {
                fn tensor(&self) -> Result<Tensor> {
                    Ok(Tensor::from(vec![1_u8, 2, 3]))
                }
            }

            dlpack_methods!($name);
        )*

        const USERS_CLASSES: &[Make] = &[$(|py| Ok(Bound::new(py, $name)?.into_any())),*];
    };
}

// Without a GIL (`PYO3_PYTHON=python3.14t`), one class alone failed too seldom.
classes!(Late0 Late1 Late2 Late3 Late4 Late5 Late6 Late7 Late8 Late9);

/// Several threads installed the buffer functions of one class at once.
#[test]
fn threads_that_need_a_class_first_all_get_its_protocols() {
    const THREADS: usize = 8;
    let _watchdog = Watchdog::of("first use");
    Python::initialize();
    let tensor: Make = |py| Ok(PyTensor::new(vec![1_u8, 2, 3]).into_pyobject(py)?.into_any());
    for make in [&[tensor], USERS_CLASSES].concat() {
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    Python::attach(|py| {
                        let object = make(py)?;
                        let view = PyMemoryView::from(&object).expect("a buffer");
                        let bytes: Vec<u8> = view.call_method0("tobytes")?.extract()?;
                        assert_eq!(bytes, [1, 2, 3]);
                        assert!(object.call_method0("__dlpack__").is_ok());
                        PyResult::Ok(())
                    })
                    .expect("no exception");
                });
            }
        });
    }
}
