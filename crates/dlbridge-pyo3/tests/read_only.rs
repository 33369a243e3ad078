//! Immutable memory of Rust in Python: what the C rules of `SAFETY.md` trust a consumer with, and a
//! class that needs no such trust. Memory of Python is in `python/tests/test_matrix.py`.
#![allow(unsafe_code, reason = "calling a table of C functions is unsafe by nature")]

mod common;

use std::env;
use std::ffi::CStr;
use std::process::Command;
use std::sync::Arc;

use common::{table_of, take};
use dlbridge::{Access, ArcTensor, Tensor};
use dlbridge_pyo3::{ExportDlpack, PyTensor, Result, TensorObject, dlpack_methods};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

static NUMBERS: [f64; 3] = [1.0, 2.0, 3.0];

/// A class that shares no memory that must not be written.
#[pyclass(frozen)]
struct Sealed(ArcTensor);

impl ExportDlpack for Sealed {
    const COPIES_READ_ONLY: bool = true;

    fn tensor(&self) -> Result<Tensor> {
        Ok(self.0.clone().into())
    }
}

dlpack_methods!(Sealed);

impl Sealed {
    fn object(py: Python<'_>, tensor: Tensor) -> Bound<'_, PyAny> {
        Bound::new(py, Self(tensor.into_shared())).expect("an object").into_any()
    }
}

/// What `object` gives a consumer that asks with these keywords.
fn ask(object: &Bound<'_, PyAny>, keywords: &CStr) -> PyResult<Tensor> {
    let keywords = object.py().eval(keywords, None, None)?.cast_into::<PyDict>()?;
    let capsule = object.call_method("__dlpack__", (), Some(&keywords))?;
    Ok(capsule.extract::<PyTensor>()?.into_inner())
}

#[test]
fn a_class_that_copies_read_only_memory_gives_each_consumer_its_own() {
    Python::attach(|py| {
        let object = Sealed::object(py, Tensor::from(&NUMBERS[..]));
        let tensors = [
            ask(&object, c"{}"),
            ask(&object, c"dict(max_version=(1, 3))"),
            ask(&object, c"dict(max_version=(1, 3), copy=True)"),
            take(table_of(&object), &object),
        ];
        for tensor in tensors {
            let tensor = tensor.expect("a copy");
            assert_ne!(tensor.data_ptr().cast_const(), NUMBERS.as_ptr().cast());
            // The legacy ABI cannot say that memory may be written.
            assert_eq!(tensor.is_read_only(), tensor.is_legacy_read_only());
            assert_eq!(tensor.view::<f64>().expect("float64").to_vec(), NUMBERS);
        }
        let error = ask(&object, c"dict(max_version=(1, 3), copy=False)").expect_err("no copy");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        let message = "copy: expected True or None, found False";
        assert!(error.to_string().contains(message), "{error}");
        assert!(object.call_method0("__dlpack_device__").is_ok());
    });
}

#[test]
fn a_class_that_copies_read_only_memory_shares_what_may_be_written() {
    Python::attach(|py| {
        let tensor = Tensor::from(vec![1.0_f64, 2.0]);
        let address = tensor.data_ptr();
        let object = Sealed::object(py, tensor);
        for keywords in [c"{}", c"dict(max_version=(1, 3), copy=False)"] {
            let shared = ask(&object, keywords).expect("the same memory");
            assert_eq!(shared.data_ptr(), address);
            assert_eq!(shared.is_read_only(), shared.is_legacy_read_only());
        }
        let shared = take(table_of(&object), &object).expect("the same memory");
        assert_eq!(shared.data_ptr(), address);
    });
}

/// PyTorch keeps no READ_ONLY flag (C1), and says so in the docs of its `from_dlpack`. In a process
/// of its own, since the second write ends it.
#[test]
fn torch_writes_to_immutable_memory_of_rust() {
    const CHILD: &str = "DLBRIDGE_TEST_TORCH_WRITES";
    if env::var_os(CHILD).is_some() {
        return Python::attach(write_by_torch);
    }
    let test = ["--exact", "--nocapture", "torch_writes_to_immutable_memory_of_rust"];
    let mut child = Command::new(env::current_exe().expect("a path"));
    let done = child.args(test).env(CHILD, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout);
    if said.contains("torch is not installed") {
        return eprintln!("skipped: torch is not installed");
    }
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("the Arc<[f64]> changed, its copy did not"), "{said}{error}");
    assert!(!done.status.success() && !said.contains("survived"), "{said}{error}");
}

fn write_by_torch(py: Python<'_>) {
    let Ok(torch) = py.import("torch") else { return println!("torch is not installed") };
    let write = |object: Bound<'_, PyAny>| {
        let taken = torch.call_method1("from_dlpack", (object,)).expect("it takes the memory");
        taken.set_item(0, 7.0).expect("it is writable to torch");
    };
    let frozen = |tensor: Tensor| {
        assert_eq!(tensor.access(), Access::Frozen);
        Bound::new(py, TensorObject::new(tensor)).expect("an object").into_any()
    };
    let (shared, kept) = (Arc::<[f64]>::from(NUMBERS), Arc::<[f64]>::from(NUMBERS));
    write(frozen(Tensor::from(Arc::clone(&shared))));
    write(Sealed::object(py, Tensor::from(Arc::clone(&kept))));
    // Read through views: a slice would promise that it does not change.
    let first = |numbers: Arc<[f64]>| {
        let tensor = Tensor::from(numbers).into_shared();
        tensor.view::<f64>().expect("float64").get([0]).expect("it has three")
    };
    assert_eq!((first(shared), first(kept)), (7.0, 1.0));
    println!("the Arc<[f64]> changed, its copy did not");
    write(frozen(Tensor::from(&NUMBERS[..])));
    println!("survived");
}
