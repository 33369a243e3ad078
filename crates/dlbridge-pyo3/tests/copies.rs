//! A producer's copy (`IS_COPIED`) gives no slice: Python code may have kept the copy.

use dlbridge::{Access, Error, Tensor};
use dlbridge_pyo3::{CopyMode, ImportOptions, PyTensor, import};
use pyo3::prelude::*;

/// NumPy shows each copy that it makes to `__array_finalize__`.
const KEEPS: &std::ffi::CStr = c"
import numpy

kept = []

class Keeps(numpy.ndarray):
    def __array_finalize__(self, obj):
        kept.append(self)

    def __dlpack__(self, **keywords):
        return super().__dlpack__(max_version=(1, 0), copy=True)

array = numpy.ones(3).view(Keeps)
";

/// Writes to the copy that NumPy exported last.
fn write(module: &Bound<'_, PyModule>, value: f64) {
    let kept = module.getattr("kept").and_then(|kept| kept.get_item(-1)).expect("NumPy's copy");
    kept.call_method1("fill", (value,)).expect("a writable copy");
}

fn module(py: Python<'_>) -> Option<Bound<'_, PyModule>> {
    if py.import("numpy").is_err() {
        println!("skipped: numpy is not installed");
        return None;
    }
    Some(PyModule::from_code(py, KEEPS, c"keeps.py", c"keeps").expect("it runs"))
}

fn is_refused<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::SharedMemory))
}

#[test]
fn a_copy_that_numpy_showed_to_a_subclass_is_shared() {
    Python::attach(|py| {
        let Some(module) = module(py) else { return };
        let array = module.getattr("array").expect("an array");
        let tensor: PyTensor = array.extract().expect("a producer");
        assert!(tensor.is_copied());
        let mut tensor = Tensor::from(tensor);
        assert!(is_refused(tensor.as_slice::<f64>()));
        assert!(is_refused(tensor.as_slice_mut::<f64>()));
        write(&module, 42.0);
        let values = tensor.view::<f64>().expect("host memory").to_vec();
        assert_eq!(values, [42.0; 3], "Python has the same memory");
    });
}

#[test]
fn a_copy_that_is_asked_for_is_made_by_rust() {
    Python::attach(|py| {
        let Some(module) = module(py) else { return };
        let array = module.getattr("array").expect("an array");
        let options = ImportOptions { copy: CopyMode::Always, ..ImportOptions::default() };
        let tensor = import(array.as_borrowed(), options).expect("a copy").tensor;
        assert_eq!((tensor.access(), tensor.is_copied()), (Access::Exclusive, true));
        write(&module, 42.0);
        assert_eq!(tensor.as_slice::<f64>(), Ok(&[1.0; 3][..]));
    });
}
