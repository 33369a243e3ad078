//! A user's own classes: what they export, what their methods may do wrong, and what comes of it.
//! Real consumers of such a class are in `python/tests/test_extension.py`.
#![allow(unsafe_code, reason = "calling a table of C functions is unsafe by nature")]

mod common;

use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use common::{borrow, table_of, take};
use dlbridge::{Access, ArcTensor, Tensor};
use dlbridge_pyo3::{Borrow, Error, ExportDlpack, PyTensor, Result, dlpack_class, dlpack_methods};
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A class that keeps a tensor, which consumers may borrow.
#[pyclass(frozen, subclass)]
struct Kept(ArcTensor);

impl ExportDlpack for Kept {
    const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|kept| &kept.0));

    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(self.0.clone()))
    }
}

#[pymethods]
impl Kept {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    #[new]
    fn new() -> Self {
        Self(numbers().into_shared())
    }
}

impl Kept {
    fn object(py: Python<'_>, tensor: ArcTensor) -> Bound<'_, PyAny> {
        Bound::new(py, Self(tensor)).expect("an object").into_any()
    }
}

fn numbers() -> Tensor {
    Tensor::from(vec![1_i32, 2, 3])
}

#[test]
fn every_export_is_of_the_same_memory() {
    Python::attach(|py| {
        let object = Kept::object(py, numbers().into_shared());
        let by_protocol = object.call_method0("__dlpack__").expect("a capsule");
        let by_protocol = by_protocol.extract::<PyTensor>().expect("a tensor");
        let by_table = take(table_of(&object), &object).expect("a tensor");
        let borrowed = borrow(table_of(&object), &object).expect("a descriptor");
        assert_eq!(by_protocol.data_ptr(), by_table.data_ptr());
        assert_eq!(borrowed.data, by_table.data_ptr());
        assert!(!by_table.is_read_only());
        drop(object);
        assert_eq!(by_table.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
    });
}

#[test]
fn the_keywords_of_the_protocol_are_known() {
    Python::attach(|py| {
        let object = Kept::object(py, numbers().into_shared());
        let ask = |keywords: &[(&str, Py<PyAny>)]| {
            let dict = PyDict::new(py);
            keywords.iter().for_each(|(name, value)| dict.set_item(name, value).expect("a dict"));
            let capsule = object.call_method("__dlpack__", (), Some(&dict))?;
            Ok::<_, PyErr>(capsule.extract::<PyTensor>().expect("an unused capsule"))
        };
        let value = |code: &std::ffi::CStr| py.eval(code, None, None).expect("it runs").unbind();
        let version =
            |tensor: &Tensor| dlbridge::ffi::raw_fields(tensor).expect("from a capsule").version;

        let old = ask(&[("max_version", value(c"(0, 8)"))]).expect("a tensor");
        assert_eq!(version(&old), None);
        let new = ask(&[("max_version", value(c"(1, 0)")), ("stream", value(c"None"))]);
        assert_eq!(version(&new.expect("a tensor")), Some((1, 3)));
        let copy = [("copy", value(c"True")), ("max_version", value(c"(1, 0)"))];
        let copy = ask(&copy).expect("a tensor");
        assert!(copy.is_copied() && copy.data_ptr() != old.data_ptr());

        let elsewhere = ask(&[("dl_device", value(c"(2, 0)"))]).expect_err("not there");
        assert!(elsewhere.is_instance_of::<PyBufferError>(py), "{elsewhere}");
        let unknown = ask(&[("flavour", value(c"1"))]).expect_err("no such keyword");
        assert!(unknown.is_instance_of::<PyTypeError>(py), "{unknown}");
    });
}

/// A class that keeps a tensor exclusively, and exports copies.
#[pyclass(frozen)]
struct Sole(Tensor);

impl ExportDlpack for Sole {
    const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|sole| &sole.0));

    fn tensor(&self) -> Result<Tensor> {
        Ok(self.0.to_contiguous()?)
    }
}

dlpack_methods!(Sole);

#[test]
fn a_tensor_that_is_kept_exclusively_is_not_borrowed() {
    Python::attach(|py| {
        // The class may read it as a slice at any time.
        let object = Bound::new(py, Sole(numbers())).expect("an object").into_any();
        let sole = object.cast::<Sole>().expect("of this class");
        assert_eq!(sole.get().0.access(), Access::Exclusive);
        let error = borrow(table_of(&object), &object).expect_err("consumers must not write there");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("into_shared()"), "{error}");
    });
}

#[test]
fn a_frozen_tensor_is_exported_read_only_and_is_not_borrowed() {
    Python::attach(|py| {
        let object = Kept::object(py, numbers().into_frozen());
        let kept = object.cast::<Kept>().expect("of this class");
        assert_eq!(kept.get().0.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
        let tensor = take(table_of(&object), &object).expect("a tensor");
        assert!(tensor.is_read_only());
        let error = borrow(table_of(&object), &object).expect_err("there are no flags");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
        let error = object.call_method0("__dlpack__").expect_err("the old ABI has no flag");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
    });
}

#[test]
fn read_only_memory_is_not_borrowed_by_a_descriptor_without_flags() {
    Python::attach(|py| {
        let object = Kept::object(py, Tensor::from(Arc::<[i32]>::from([1, 2, 3])).into_shared());
        let error = borrow(table_of(&object), &object).expect_err("there are no flags");
        assert!(error.to_string().contains("read-only"), "{error}");
        assert!(take(table_of(&object), &object).expect("a tensor").is_read_only());
    });
}

#[test]
fn objects_of_a_derived_class_are_accepted_and_others_refused() {
    Python::attach(|py| {
        let table = table_of(&Kept::object(py, numbers().into_shared()));
        let base = py.get_type::<Kept>();
        let derived = py.get_type::<pyo3::types::PyType>();
        let derived = derived.call1(("Derived", (base,), PyDict::new(py))).expect("a subclass");
        let object = derived.call0().expect("an object");
        assert_eq!(take(table, &object).expect("a tensor").len(), 3);
        assert_eq!(borrow(table, &object).expect("a descriptor").ndim, 1);
        for other in [py.None().into_bound(py), derived, PyDict::new(py).into_any()] {
            let error = take(table, &other).expect_err("no object of the class");
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            let error = borrow(table, &other).expect_err("no object of the class");
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
        }
    });
}

/// What an odd class does when it is asked for its tensor.
type Export = fn(&Bound<'_, Odd>) -> Result<Tensor>;

/// A class that is not frozen, keeps nothing, and does whatever a test wants.
#[pyclass]
struct Odd {
    export: Export,
    myself: OnceLock<Py<Odd>>,
    exports: AtomicUsize,
}

impl ExportDlpack for Odd {
    fn tensor(&self) -> Result<Tensor> {
        self.exports.fetch_add(1, Ordering::Relaxed);
        Python::attach(|py| (self.export)(self.myself.get().expect("set when made").bind(py)))
    }
}

#[pymethods]
impl Odd {
    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Py<PyAny>> {
        dlpack_class::<Self>(py)
    }

    fn change(&mut self, during: &Bound<'_, PyAny>) -> PyResult<()> {
        during.call0().map(drop)
    }
}

impl Odd {
    fn object(py: Python<'_>, export: Export) -> Bound<'_, Self> {
        let (myself, exports) = (OnceLock::new(), AtomicUsize::new(0));
        let object = Bound::new(py, Self { export, myself, exports }).expect("an object");
        let myself = object.clone().unbind();
        object.borrow().myself.set(myself).expect("a new one is empty");
        object
    }
}

/// The outcome of each way to ask for a tensor.
fn all_ways(object: &Bound<'_, PyAny>) -> Vec<PyResult<()>> {
    vec![
        object.call_method0("__dlpack__").map(drop),
        object.call_method0("__dlpack_device__").map(drop),
        take(table_of(object), object).map(drop),
        object.extract::<PyTensor>().map(drop).map_err(PyErr::from),
    ]
}

#[test]
fn a_panic_is_an_ordinary_exception() {
    Python::attach(|py| {
        let exports: [Export; 2] = [|_| panic!("lost it"), |_| panic!("lost {}", "it")];
        for export in exports {
            for outcome in all_ways(Odd::object(py, export).as_any()) {
                let error = outcome.expect_err("it panics");
                assert!(error.is_instance_of::<PyRuntimeError>(py), "{error}");
                assert_eq!(error.to_string(), "RuntimeError: Odd: its export panicked: lost it");
            }
        }
    });
}

#[test]
fn an_error_is_the_exception_that_the_class_chose() {
    Python::attach(|py| {
        let object = Odd::object(py, |_| Err(Error::from(PyValueError::new_err("closed already"))));
        for outcome in all_ways(object.as_any()) {
            let error = outcome.expect_err("it is closed");
            assert_eq!(error.to_string(), "ValueError: closed already");
        }
    });
}

#[test]
fn an_object_that_is_being_changed_is_not_exported() {
    Python::attach(|py| {
        let object = Odd::object(py, |_| Ok(numbers()));
        let changing = object.borrow_mut();
        for outcome in all_ways(object.as_any()) {
            let error = outcome.expect_err("it is being changed");
            assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        }
        drop(changing);
        for outcome in all_ways(object.as_any()) {
            outcome.expect("it is not any more");
        }
        // The same from Python: a method that changes the object exports it.
        let during = object.getattr("__dlpack__").expect("a method");
        let error = object.call_method1("change", (during,)).expect_err("it is being changed");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
    });
}

#[test]
fn a_class_without_a_tensor_to_borrow_has_a_null_callback() {
    Python::attach(|py| {
        let object = Odd::object(py, |_| Ok(numbers()));
        assert!(table_of(object.as_any()).dltensor_from_py_object_no_sync.is_none());
    });
}

#[test]
fn an_export_may_export_the_same_object_again() {
    Python::attach(|py| {
        let object = Odd::object(py, |myself| {
            if myself.borrow().exports.load(Ordering::Relaxed) < 20 {
                return Ok(myself.extract::<PyTensor>()?.into_inner());
            }
            Ok(numbers())
        });
        let tensor = object.extract::<PyTensor>().expect("at the bottom there is one");
        assert_eq!(tensor.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
        assert_eq!(object.borrow().exports.load(Ordering::Relaxed), 20);
    });
}

#[test]
fn memory_that_was_made_for_the_occasion_is_the_consumers_alone() {
    Python::attach(|py| {
        let object = Odd::object(py, |_| Ok(numbers().to_contiguous()?));
        let first = take(table_of(object.as_any()), object.as_any()).expect("a tensor");
        let second = take(table_of(object.as_any()), object.as_any()).expect("a tensor");
        assert_ne!(first.data_ptr(), second.data_ptr());
        assert_eq!((first.access(), first.is_copied()), (Access::Shared, true));
    });
}

#[test]
fn each_class_has_a_table_of_its_own() {
    Python::attach(|py| {
        let kept = Kept::object(py, numbers().into_shared());
        let odd = Odd::object(py, |_| Ok(numbers())).into_any();
        assert!(!ptr::eq(table_of(&kept), table_of(&odd)));
        let error = take(table_of(&kept), &odd).expect_err("of another class");
        assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
    });
}
