//! An extension without the default features: what it refuses names the feature that would take it.
#![cfg(not(any(feature = "columns", feature = "cuda")))]
#![allow(unsafe_code, reason = "a fake producer of device memory")]

use std::ffi::CStr;

use dlbridge::{Device, DeviceKind, Tensor};
use dlbridge_pyo3::{PyTensor, PyTensorLike, Stream, TensorObject};
use dlbridge_testing::Foreign;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Classes with one protocol each, and the error of an array of pyarrow that has nulls.
const CLASSES: &CStr = c"
class Column:
    def __arrow_c_array__(self, requested_schema=None): raise AssertionError('called')
class Table:
    def __arrow_c_stream__(self, requested_schema=None): raise AssertionError('called')
    def to_numpy(self): raise AssertionError('called')
class Nulls(Column):
    def __dlpack__(self, **keywords): raise TypeError('Can only use DLPack on arrays with no nulls.')
class OnDevice:
    __cuda_array_interface__ = dict(version=3, shape=(2,), typestr='<f4', data=(64, False))
";

/// An object of these classes.
fn made<'py>(py: Python<'py>, code: &CStr) -> Bound<'py, PyAny> {
    let names = PyDict::new(py);
    py.run(CLASSES, Some(&names), None).expect("classes");
    py.eval(code, Some(&names), None).expect("an object")
}

fn refusal(object: &Bound<'_, PyAny>) -> String {
    object.extract::<PyTensor>().expect_err("a feature that is off").to_string()
}

#[test]
fn a_column_names_the_feature_columns() {
    Python::attach(|py| {
        let expected = "TypeError: expected an array (NumPy, PyTorch, JAX, a buffer, ...), found ";
        assert_eq!(
            refusal(&made(py, c"Column()")),
            format!(
                "{expected}Column, whose __arrow_c_array__ an extension reads by the feature `columns` of dlbridge-pyo3"
            )
        );
        assert_eq!(
            refusal(&made(py, c"Table()")),
            format!(
                "{expected}Table, whose __arrow_c_stream__ an extension reads by the feature `columns` of dlbridge-pyo3; pass x.to_numpy()"
            )
        );
        assert!(refusal(&made(py, c"Nulls()")).contains("feature `columns`"));
    });
}

/// NumPy makes NaN of a column's nulls.
#[test]
fn a_column_is_not_converted_by_numpy_either() {
    Python::attach(|py| {
        let error = made(py, c"Table()").extract::<PyTensorLike<f64, 1>>().unwrap_err().to_string();
        assert!(error.contains("feature `columns`"), "{error}");
    });
}

#[test]
fn cudas_array_interface_names_the_feature_cuda() {
    Python::attach(|py| {
        assert_eq!(
            refusal(&made(py, c"OnDevice()")),
            "TypeError: expected an array (NumPy, PyTorch, JAX, a buffer, ...), found OnDevice, whose \
             __cuda_array_interface__ an extension reads by the feature `cuda` of dlbridge-pyo3"
        );
    });
}

/// Memory of a device, which no test reads.
fn on(device: Device) -> Tensor {
    let foreign = Foreign::new(&[2], &[1.0_f32, 2.0]).device(device);
    // SAFETY: the elements are there.
    unsafe { foreign.import() }.expect("a valid descriptor")
}

#[test]
fn device_memory_is_passed_on_and_other_work_names_the_feature_cuda() {
    Python::attach(|py| {
        let device = Device::cuda(0);
        let object = TensorObject::new(on(device)).into_pyobject(py).expect("an object");
        let tensor: PyTensor = object.extract().expect("work of the default stream");
        assert_eq!(tensor.device(), device);
        let error = TensorObject::new(on(device)).ready_after(Stream::PER_THREAD).unwrap_err();
        assert_eq!(
            error.to_string(),
            "BufferError: stream: expected memory that is ready, found work on stream 2 of cuda:0; an extension waits for \
             it by the feature `cuda` of dlbridge-pyo3"
        );
    });
}

/// Without the feature, the driver is not asked whether work is queued.
#[test]
fn the_host_does_not_read_managed_memory_before_its_work_is_done() {
    Python::attach(|py| {
        let managed = Device::new(DeviceKind::CUDA_MANAGED, 0);
        let object = TensorObject::new(on(managed)).into_pyobject(py).expect("an object");
        let error = object.call_method0("numpy").expect_err("it may not be ready").to_string();
        assert!(error.contains("feature `cuda`"), "{error}");
    });
}
