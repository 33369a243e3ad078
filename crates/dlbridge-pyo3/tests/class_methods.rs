//! What `dlpack_class` gives a user's class beside DLPack: buffers, `__array__`, `__arrow_c_array__`.
//! DLPack itself is in `classes.rs`.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge::{ArcTensor, DType, Parts, Tensor};
use dlbridge_pyo3::{ExportDlpack, PyTensor, Result, dlpack_class, dlpack_methods};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

/// A class with a block of methods of its own.
#[pyclass(frozen, subclass)]
struct Signal(ArcTensor);

impl ExportDlpack for Signal {
    fn tensor(&self) -> Result<Tensor> {
        Ok(self.0.clone().into())
    }
}

#[pymethods]
impl Signal {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }
}

impl Signal {
    fn object(py: Python<'_>, tensor: Tensor) -> Bound<'_, PyAny> {
        Bound::new(py, Self(tensor.into_shared())).expect("an object").into_any()
    }
}

fn numbers() -> Tensor {
    Tensor::from(vec![1_i32, 2, 3, 4]).reshape([2, 2]).expect("four of them")
}

/// The value of an expression over `x`.
fn eval<'py>(x: &Bound<'py, PyAny>, source: &CStr) -> PyResult<Bound<'py, PyAny>> {
    let py = x.py();
    let names = PyDict::new(py);
    names.set_item("x", x)?;
    names.set_item("np", py.import("numpy")?)?;
    py.eval(source, Some(&names), None)
}

fn holds(x: &Bound<'_, PyAny>, source: &CStr) -> bool {
    eval(x, source).and_then(|value| value.is_truthy()).expect("it runs")
}

#[test]
fn numpy_makes_an_array_of_the_same_memory() {
    Python::attach(|py| {
        let tensor = numbers();
        let address = tensor.data_ptr().addr();
        let object = Signal::object(py, tensor);
        for array in [c"np.asarray(x)", c"np.array(x, copy=False)", c"np.from_dlpack(x)"] {
            let array = eval(&object, array).expect("an array");
            assert!(holds(&array, c"x.dtype == 'int32' and x.tolist() == [[1, 2], [3, 4]]"));
            assert_eq!(array.extract::<PyTensor>().expect("an array").data_ptr().addr(), address);
        }
        assert!(holds(&object, c"np.asarray(x, dtype='float64').tolist() == [[1, 2], [3, 4]]"));
        assert!(holds(&object, c"np.sum(x) == 10 and len(x) == 4"));
        eval(&object, c"np.asarray(x).fill(7)").expect("writable");
        assert!(holds(&object, c"x.__array__('int32').tolist() == [[7, 7], [7, 7]]"));
        assert!(holds(&object, c"x.__array__(copy=True) is not x.__array__()"));
    });
}

#[test]
fn types_without_a_struct_format_are_arrays_of_ml_dtypes() {
    Python::attach(|py| {
        if py.import("ml_dtypes").is_err() {
            println!("skipped: ml_dtypes is not installed");
            return;
        }
        let tensor = Tensor::from_bytes(DType::BF16, [2], &[0x80, 0x3f, 0, 0x40]);
        let object = Signal::object(py, tensor.expect("two of them"));
        assert!(holds(&object, c"np.asarray(x).dtype.name == 'bfloat16'"));
        assert!(holds(&object, c"np.asarray(x).astype('float32').tolist() == [1, 2]"));
    });
}

#[test]
fn a_buffer_keeps_the_memory_of_an_object() {
    struct Counted(Vec<u8>, Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl AsMut<[u8]> for Counted {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.0
        }
    }
    Python::attach(|py| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let owner = Counted(vec![1, 2, 3], Arc::clone(&dropped));
        let tensor = Tensor::builder(owner).shape([3]).build::<u8>().expect("three of them");
        let object = Signal::object(py, tensor);
        let view = PyMemoryView::from(&object).expect("a buffer");
        drop(object);
        assert_eq!((view.len().expect("one axis"), dropped.load(Ordering::Relaxed)), (3, 0));
        view.call_method0("release").expect("it is not used");
        drop(view);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}

/// A class from which Python code may derive others.
#[pyclass(frozen, subclass)]
struct Base;

impl ExportDlpack for Base {
    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(vec![1_u8, 2]))
    }
}

#[pymethods]
impl Base {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    #[new]
    fn new() -> Self {
        Self
    }
}

#[test]
fn a_class_that_python_derives_has_buffers() {
    Python::attach(|py| {
        let base = py.get_type::<Base>().into_any();
        for derived in [c"type('D', (x,), {})()", c"type('D', (type('C', (x,), {}),), {})()"] {
            let object = eval(&base, derived).expect("a class that may be derived");
            assert!(holds(&object, c"bytes(memoryview(x)) == b'\\x01\\x02'"));
            assert!(holds(&object, c"np.asarray(x).tolist() == [1, 2]"));
        }
    });
}

#[test]
fn read_only_memory_stays_read_only() {
    Python::attach(|py| {
        let object = Signal::object(py, Tensor::from(Arc::<[u8]>::from([1, 2])));
        assert!(holds(&object, c"memoryview(x).readonly and not np.asarray(x).flags.writeable"));
        let tensor: PyTensor =
            eval(&object, c"memoryview(x)").expect("a buffer").extract().expect("bytes");
        assert!(tensor.is_read_only());
    });
}

static WEIGHTS: [f32; 2] = [0.25, 0.75];

/// A class whose consumers get copies.
#[pyclass(frozen)]
struct Weights;

impl ExportDlpack for Weights {
    const COPIES_READ_ONLY: bool = true;

    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(&WEIGHTS[..]))
    }
}

dlpack_methods!(Weights);

#[test]
fn a_class_that_copies_read_only_memory_copies_it_for_every_protocol() {
    Python::attach(|py| {
        let object = Bound::new(py, Weights).expect("an object").into_any();
        for array in [c"np.asarray(x)", c"np.asarray(memoryview(x))", c"x.__array__()"] {
            let array = eval(&object, array).expect("an array");
            assert!(holds(&array, c"x.flags.writeable and x.tolist() == [0.25, 0.75]"));
            let tensor: PyTensor = array.extract().expect("an array");
            assert_ne!(tensor.data_ptr().addr(), WEIGHTS.as_ptr().addr());
        }
    });
}

/// A class that has one of the methods itself, and panics.
#[pyclass]
struct Own;

impl ExportDlpack for Own {
    fn tensor(&self) -> Result<Tensor> {
        panic!("lost it")
    }
}

#[pymethods]
impl Own {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    fn __array__(&self) -> &'static str {
        "its own"
    }
}

#[test]
fn a_method_of_the_class_is_kept() {
    Python::attach(|py| {
        let object = Bound::new(py, Own).expect("an object").into_any();
        assert!(holds(&object, c"x.__array__() == 'its own'"));
    });
}

#[test]
fn a_panic_is_an_exception_of_every_protocol() {
    Python::attach(|py| {
        let object = Bound::new(py, Own).expect("an object").into_any();
        for source in [c"memoryview(x)", c"x.__arrow_c_array__()", c"x.__dlpack__()"] {
            let error = eval(&object, source).expect_err("it panics");
            assert!(error.is_instance_of::<PyRuntimeError>(py), "{error}");
            assert_eq!(error.to_string(), "RuntimeError: Own: its export panicked: lost it");
        }
        let changing = object.cast::<Own>().expect("of this class").borrow_mut();
        let error = PyMemoryView::from(&object).expect_err("it is being changed");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        drop(changing);
    });
}

/// An owner that panics when it is dropped.
struct Fragile(Vec<u8>);

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

impl AsMut<[u8]> for Fragile {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// A class whose exports each have such an owner.
#[pyclass(frozen)]
struct Fresh;

impl ExportDlpack for Fresh {
    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::builder(Fragile(vec![1, 2, 3])).shape([3]).build::<u8>()?)
    }
}

dlpack_methods!(Fresh);

#[test]
fn an_owner_that_panics_when_it_is_dropped_ends_no_process() {
    Python::attach(|py| {
        let object = Bound::new(py, Fresh).expect("an object").into_any();
        for source in [
            c"bytes(memoryview(x)) == b'\\1\\2\\3'",
            c"x.__arrow_c_array__() is not None",
            c"x.__dlpack__() is not None",
            c"np.from_dlpack(x).sum() == 6",
        ] {
            assert!(holds(&object, source));
        }
        let error = eval(&object, c"x.__dlpack_device__()").expect_err("its tensor is dropped");
        assert_eq!(error.to_string(), "RuntimeError: Fresh: its export panicked: dropped");
    });
}

/// An object of a user's class, and a `dlbridge.Tensor`.
fn of_both_classes(py: Python<'_>) -> [Bound<'_, PyAny>; 2] {
    let tensor = PyTensor::new(numbers()).into_pyobject(py).expect("an object");
    [Signal::object(py, numbers()), tensor.into_any()]
}

#[test]
fn wrong_arguments_are_named() {
    Python::attach(|py| {
        for (source, message) in [
            (c"x.__dlpack__(None)", "__dlpack__() takes no positional arguments, found 1"),
            (c"x.__dlpack__(None, copy=None)", "takes no positional arguments, found 1"),
            (c"x.__dlpack__(flavour=1)", "got an unexpected keyword argument 'flavour'"),
            (c"x.__dlpack__(flavour=None)", "got an unexpected keyword argument 'flavour'"),
            (c"x.__dlpack__(copy=None, **{'copy': None})", "multiple values for keyword"),
            (c"x.__dlpack__(**{1: None})", "keywords must be strings"),
            (c"x.__dlpack__(max_version=1)", "max_version: expected a tuple of two numbers"),
            (c"x.__dlpack__(max_version=[1, 1])", "such as (1, 3), found [1, 1]"),
            (c"x.__dlpack__(max_version=(1, None))", "found (1, None)"),
            (c"x.__dlpack__(max_version=(1.0, 0))", "found (1.0, 0)"),
            (c"x.__dlpack__(dl_device=1)", "dl_device: expected two numbers, such as those that"),
            (c"x.__dlpack__(dl_device='cpu')", "__dlpack_device__() returns, found 'cpu'"),
            (c"x.__dlpack__(dl_device=(None, 0))", "returns, found (None, 0)"),
            (c"x.__dlpack__(copy=3)", "copy: expected True, False or None, found 3"),
            (c"x.__dlpack__(stream='fast')", "stream: expected"),
            (c"type(x).__dlpack__()", "argument"),
        ] {
            for object in of_both_classes(py) {
                let error = eval(&object, source).expect_err("wrong");
                assert!(error.to_string().contains(message), "{source:?}: {error}");
                let is_stream = message.starts_with("stream");
                assert_eq!(error.is_instance_of::<PyTypeError>(py), !is_stream, "{error}");
            }
        }
        for object in of_both_classes(py) {
            for (source, kind) in [
                (c"x.__dlpack__(max_version=(1, 2**70))", "OverflowError"),
                (c"x.__dlpack__(max_version=(-1, 0))", "OverflowError"),
                (
                    c"x.__dlpack__(max_version=(1,))",
                    "ValueError: max_version: expected a tuple of two",
                ),
            ] {
                let error = eval(&object, source).expect_err("wrong").to_string();
                assert!(error.starts_with(kind), "{error}");
            }
        }
    });
}

#[test]
fn arguments_that_mean_the_same_are_understood() {
    Python::attach(|py| {
        for object in of_both_classes(py) {
            for source in [
                c"x.__dlpack__(stream=None, max_version=None, dl_device=None, copy=None)",
                c"x.__dlpack__(dl_device=(1, None), stream=-1)",
                c"x.__dlpack__(dl_device=(True, False), copy=np.False_)",
            ] {
                let capsule = eval(&object, source).expect("a capsule");
                assert!(holds(&capsule, c"'\"dltensor\"' in repr(x)"));
            }
            for source in [
                c"x.__dlpack__(max_version=(True, False))",
                c"x.__dlpack__(max_version=(np.int64(1), 2**32 - 1))",
                // A name that is not interned.
                c"x.__dlpack__(**{''.join(['max_', 'version']): (1, 3)})",
            ] {
                let capsule = eval(&object, source).expect("a capsule");
                assert!(holds(&capsule, c"'\"dltensor_versioned\"' in repr(x)"));
            }
            assert!(holds(&object, c"x.__dlpack_device__() == (1, 0)"));
            assert!(holds(
                &object,
                c"type(x).__dlpack__.__text_signature__.startswith('($self, /, *')"
            ));
        }
    });
}

#[test]
fn a_derived_class_has_the_same_protocols() {
    Python::attach(|py| {
        let object = Signal::object(py, numbers());
        let derived = eval(&object, c"type('Derived', (type(x),), {})").expect("a class");
        assert!(holds(&derived, c"all(hasattr(x, name) for name in ('__dlpack__', '__array__'))"));
    });
}

#[test]
fn pyarrow_makes_an_array() {
    Python::attach(|py| {
        let object = Signal::object(py, numbers());
        let Ok(pyarrow) = py.import("pyarrow") else {
            println!("skipped: pyarrow is not installed");
            return;
        };
        let array = pyarrow.call_method1("array", (&object,)).expect("a column");
        assert!(holds(&array, c"x.to_pylist() == [[1, 2], [3, 4]]"));
    });
}

/// A class that drops a reference to its object in each export.
#[pyclass(frozen)]
struct Naming(Py<PyAny>);

impl ExportDlpack for Naming {
    fn tensor(&self) -> Result<Tensor> {
        drop(Python::attach(|py| self.0.clone_ref(py)));
        Ok(Tensor::from(vec![1_u8]))
    }
}

dlpack_methods!(Naming);

/// PyO3 releases what is dropped on a thread of Python only while one of its functions runs there.
#[test]
fn objects_that_an_export_drops_on_a_thread_of_python_are_released_at_once() {
    Python::attach(|py| -> PyResult<()> {
        let names = PyDict::new(py);
        let held = PyDict::new(py).into_any();
        names.set_item("held", &held)?;
        names.set_item("x", Naming(held.unbind()))?;
        py.run(
            c"
import sys, threading

def export():
    for _ in range(1000):
        x.__dlpack__(), x.__dlpack_device__(), memoryview(x)

before = sys.getrefcount(held)
thread = threading.Thread(target=export)
thread.start()
thread.join()
assert sys.getrefcount(held) == before, sys.getrefcount(held)
",
            Some(&names),
            None,
        )
    })
    .unwrap();
}
