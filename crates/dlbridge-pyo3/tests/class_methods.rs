//! What `dlpack_class` gives a user's class beside DLPack: buffers, `__array__`, `__arrow_c_array__`.
//! DLPack itself is in `classes.rs`.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use dlbridge::{DType, SharedTensor, Tensor};
use dlbridge_pyo3::{ExportDlpack, PyTensor, Result, dlpack_class, dlpack_methods};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMemoryView};

/// A class with a block of methods of its own.
#[pyclass(frozen, subclass)]
struct Signal(SharedTensor);

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
    Tensor::from(vec![1_i32, 2, 3, 4]).reshape(&[2, 2]).expect("four of them")
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
        let tensor = Tensor::from_bytes(DType::BF16, &[2], &[0x80, 0x3f, 0, 0x40]);
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
        let tensor = Tensor::builder(owner).shape(&[3]).build::<u8>().expect("three of them");
        let object = Signal::object(py, tensor);
        let view = PyMemoryView::from(&object).expect("a buffer");
        drop(object);
        assert_eq!((view.len().expect("one axis"), dropped.load(Ordering::Relaxed)), (3, 0));
        view.call_method0("release").expect("it is not used");
        drop(view);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
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

#[test]
fn wrong_arguments_are_named() {
    Python::attach(|py| {
        let object = Signal::object(py, numbers());
        for (source, message) in [
            (c"x.__dlpack__(None)", "takes no positional arguments, found 1"),
            (c"x.__dlpack__(flavour=1)", "unexpected keyword argument 'flavour'"),
            (c"x.__dlpack__(max_version=1)", "argument 'max_version': "),
            (c"x.__dlpack__(dl_device='cpu')", "argument 'dl_device': "),
            (c"x.__dlpack__(copy=3)", "argument 'copy': "),
        ] {
            let error = eval(&object, source).expect_err("wrong");
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            assert!(error.to_string().contains(message), "{error}");
        }
        assert!(holds(&object, c"x.__dlpack__(stream=None, dl_device=(1, None), copy=None)"));
        assert!(holds(&object, c"x.__dlpack_device__() == (1, 0)"));
        assert!(holds(
            &object,
            c"type(x).__dlpack__.__text_signature__.startswith('($self, /, *')"
        ));
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

macro_rules! classes_made_late {
    ($($name:ident)*) => {
        $(
            #[pyclass(frozen)]
            struct $name;

            impl ExportDlpack for $name {
                fn tensor(&self) -> Result<Tensor> {
                    Ok(Tensor::from(vec![1_u8, 2]))
                }
            }

            dlpack_methods!($name);
        )*

        /// Functions that make the class, if there is none yet, and an object.
        const MADE_LATE: &[fn(Python<'_>) -> PyResult<Bound<'_, PyAny>>] =
            &[$(|py| Ok(Bound::new(py, $name)?.into_any())),*];
    };
}

classes_made_late!(Late0 Late1 Late2 Late3 Late4 Late5 Late6 Late7 Late8 Late9);

/// Without a GIL (`PYO3_PYTHON=python3.14t`), one run in five failed: a class changed while it was made.
#[test]
fn threads_that_need_a_class_first_all_get_its_protocols() {
    const THREADS: usize = 8;
    for make in MADE_LATE {
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    start.wait();
                    Python::attach(|py| {
                        let object = make(py).expect("an object");
                        assert!(holds(&object, c"bytes(memoryview(x)) == b'\\x01\\x02'"));
                        assert!(holds(&object, c"np.asarray(x).tolist() == [1, 2]"));
                    });
                });
            }
        });
    }
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
