//! Pickles of a user's own classes, and of `dlbridge.Tensor` in an extension.
//! Those of the Python package, and of an extension whose tensors it pickles, are in `python/tests/test_pickle.py`.
#![cfg(feature = "tensor-methods")]

use std::ffi::CStr;

use dlbridge::{ArcTensor, Tensor};
use dlbridge_pyo3::{
    ExportDlpack, Pickle, PyDType, PyTensor, PyTensorMut, Result, TensorObject, dlpack_class,
    dlpack_methods,
};
use pyo3::exceptions::{PyImportError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

fn numbers() -> Tensor {
    Tensor::from(vec![1_i32, 2, 3])
}

/// A class that pickles.
#[pyclass(frozen, module = "test_pickles")]
struct Pickled(ArcTensor);

impl Pickled {
    fn from_tensor(tensor: Tensor) -> Result<Self> {
        tensor.view::<i32>()?;
        Ok(Self(tensor.into_shared()))
    }
}

impl ExportDlpack for Pickled {
    const PICKLE: Option<Pickle<Self>> = Some(Pickle::new(Self::from_tensor));

    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(self.0.clone()))
    }
}

#[pymethods]
impl Pickled {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

/// The short form.
#[pyclass(frozen, module = "test_pickles")]
struct PickledToo;

impl ExportDlpack for PickledToo {
    const PICKLE: Option<Pickle<Self>> = Some(Pickle::new(|_| Ok(Self)));

    fn tensor(&self) -> Result<Tensor> {
        Ok(numbers())
    }
}

dlpack_methods!(PickledToo);

static WEIGHTS: [f32; 2] = [0.25, 0.75];

/// A class whose consumers get copies.
#[pyclass(frozen, subclass, module = "test_pickles")]
struct Weights;

impl ExportDlpack for Weights {
    const COPIES_READ_ONLY: bool = true;
    const PICKLE: Option<Pickle<Self>> = Some(Pickle::new(|_| panic!("lost it")));

    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(&WEIGHTS[..]))
    }
}

dlpack_methods!(Weights);

fn state_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    object.call_method1("__reduce_ex__", (5,))?.get_item(1)?.get_item(0)
}

/// A class with `COPIES_READ_ONLY` gave its own memory to the consumer of a pickle's buffer.
#[test]
fn a_class_that_copies_read_only_memory_pickles_a_copy() {
    Python::attach(|py| {
        let object = Bound::new(py, Weights).expect("an object").into_any();
        let buffer = state_of(&object).expect("a buffer");
        let bytes = buffer.extract::<PyTensor>().expect("a buffer");
        assert_ne!(bytes.data_ptr().addr(), WEIGHTS.as_ptr().addr());
    });
}

#[test]
fn a_panic_of_a_class_is_an_exception_of_pickle() {
    Python::attach(|py| {
        let arguments = (PyBytes::new(py, &[0; 4]), "float32", [1], 0);
        let error = py.get_type::<Weights>().call_method1("_unpickle", arguments);
        let error = error.expect_err("it panics");
        assert!(error.is_instance_of::<PyRuntimeError>(py), "{error}");
        assert_eq!(error.to_string(), "RuntimeError: Weights: its pickle panicked: lost it");
    });
}

#[test]
fn an_object_of_a_derived_class_is_not_pickled_as_one_of_its_base() {
    Python::attach(|py| {
        let base = py.get_type::<Weights>();
        let names = PyDict::new(py);
        names.set_item("Base", base).expect("a dict");
        // Without a constructor, it has no objects of its own.
        py.run(c"class Derived(Base): __slots__ = ()", Some(&names), None).expect("a class");
        let object = Bound::new(py, Weights).expect("an object").into_any();
        let derived = names.get_item("Derived").expect("a dict").expect("there");
        if let Err(error) = object.setattr("__class__", derived) {
            println!("skipped: this PyO3 permits no assignment to __class__: {error}");
            return;
        }
        let error = state_of(&object).expect_err("derived");
        assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
        assert!(error.to_string().contains("define __reduce_ex__ there"), "{error}");
    });
}

#[test]
fn a_class_pickles_by_one_constant() {
    const PROGRAM: &CStr = c"
import pickle
for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
    again = pickle.loads(pickle.dumps(x, protocol))
    assert type(again) is type(x) and len(again) == 3
    assert type(pickle.loads(pickle.dumps(y, protocol))) is type(y)
buffers = []
pickled = pickle.dumps(x, 5, buffer_callback=buffers.append)
again = pickle.loads(pickled, buffers=buffers)
try:
    type(x)._unpickle(b'1234', 'float32', [1], 0)
except TypeError as error:
    refused = str(error)
";
    Python::attach(|py| {
        let module = PyModule::new(py, "test_pickles").expect("a module");
        module.add_class::<Pickled>().expect("a class");
        module.add_class::<PickledToo>().expect("a class");
        let modules = py.import("sys").expect("sys").getattr("modules").expect("a dict");
        modules.set_item("test_pickles", &module).expect("a dict");
        let names = PyDict::new(py);
        let x = Bound::new(py, Pickled(numbers().into_shared())).expect("an object");
        names.set_item("x", &x).expect("a dict");
        names.set_item("y", Bound::new(py, PickledToo).expect("an object")).expect("a dict");
        py.run(PROGRAM, Some(&names), None).expect("it runs");
        let again = names.get_item("again").expect("a dict").expect("there");
        let again = again.extract::<PyTensor>().expect("a tensor");
        assert_eq!(again.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
        assert_eq!(again.data_ptr(), x.get().0.data_ptr(), "out of band, nothing is copied");
        let refused = names.get_item("refused").expect("a dict").expect("there").to_string();
        let expected = "dtype: expected int32, found float32; pass np.asarray(x, \"int32\"), \
                        without the fractions";
        assert_eq!(refused, expected);
    });
}

/// The function of the Python package, from these sources: an installed package may be older.
#[pyfunction]
fn _unpickle(
    data: &Bound<'_, PyAny>,
    dtype: PyDType,
    shape: Vec<i64>,
    flags: u64,
) -> Result<TensorObject> {
    TensorObject::unpickle(data.as_borrowed(), dtype.0, &shape, flags)
}

#[test]
fn a_tensor_of_an_extension_pickles_by_the_package() {
    Python::attach(|py| {
        let pickle = py.import("pickle").expect("pickle");
        let modules = py.import("sys").expect("sys").getattr("modules").expect("a dict");
        let tensor = PyTensor::new(numbers()).into_pyobject(py).expect("an object");
        // `None` is a module that cannot be imported.
        modules.set_item("dlbridge._native", py.None()).expect("a dict");
        let error = pickle.call_method1("dumps", (&tensor, 5)).expect_err("no package");
        assert!(error.is_instance_of::<PyImportError>(py), "{error}");

        let native = PyModule::new(py, "dlbridge._native").expect("a module");
        let function = wrap_pyfunction!(_unpickle, &native).expect("a function");
        native.add_function(function).expect("a module");
        for name in ["dlbridge", "dlbridge._native"] {
            modules.set_item(name, &native).expect("a dict");
        }
        let pickled = pickle.call_method1("dumps", (&tensor, 5)).expect("bytes");
        let again = pickle.call_method1("loads", (pickled,)).expect("a tensor");
        let again = again.extract::<PyTensor>().expect("a tensor");
        assert_eq!(again.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
        memory_that_is_written_is_not_pickled_in_any_protocol(&pickle, &tensor);
    });
}

/// A pickler read the bytes without a borrow, so that a writer on another thread tore them. In the test above, because it
/// needs the package.
fn memory_that_is_written_is_not_pickled_in_any_protocol(
    pickle: &Bound<'_, PyModule>,
    tensor: &Bound<'_, TensorObject>,
) {
    let dumps = |protocol: i32| pickle.call_method1("dumps", (tensor, protocol));
    let reduce = |protocol: i32| tensor.call_method1("__reduce_ex__", (protocol,));
    let writer = || tensor.extract::<PyTensorMut<i32>>();
    let mut written = writer().expect("to write");
    written.view_mut().fill(4);
    for protocol in 0..=5 {
        let error = dumps(protocol).expect_err("written");
        assert!(error.to_string().contains("another argument"), "{error}");
    }
    drop(written);
    for protocol in 0..5 {
        let _pickled = reduce(protocol).expect("bytes");
        writer().expect("the pickle has a copy");
    }
    dumps(5).expect("bytes");
    writer().expect("the pickle has a copy");
    let pickled = reduce(5).expect("a buffer");
    writer().expect_err("the buffer is the memory itself");
    drop(pickled);
    writer().expect("the buffer is gone");
}
