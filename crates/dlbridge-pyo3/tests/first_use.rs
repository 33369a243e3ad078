//! Classes that several threads need first. A process of its own: this happens once.

#[path = "common/watchdog.rs"]
mod watchdog;

use std::sync::Barrier;
use std::thread;

use dlbridge::Tensor;
use dlbridge_pyo3::{ExportDlpack, PyTensor, Result, dlpack_methods};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use watchdog::Watchdog;

/// A user's class.
#[pyclass(frozen)]
struct Late;

impl ExportDlpack for Late {
    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(vec![1_u8, 2, 3]))
    }
}

dlpack_methods!(Late);

#[test]
fn threads_that_need_a_class_first_all_get_its_protocols() {
    const THREADS: usize = 8;
    let _watchdog = Watchdog::of("first use");
    Python::initialize();
    let makers: [fn(Python<'_>) -> Bound<'_, PyAny>; 2] = [
        |py| PyTensor::new(vec![1_u8, 2, 3]).into_pyobject(py).expect("an object").into_any(),
        |py| Bound::new(py, Late).expect("an object").into_any(),
    ];
    for make in makers {
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    Python::attach(|py| {
                        let object = make(py);
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
