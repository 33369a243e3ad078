//! Tensors as arrays of another's kind, and memory from its allocator: what a table may do wrong.
//! Real frameworks are in `python/tests/test_extension.py`.
#![allow(unsafe_code, reason = "tables of C functions are unsafe by nature")]

mod common;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use common::{empty_table, object_with, table_of};
use dlbridge::sys::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackManagedTensorAllocator,
    DLPackManagedTensorToPyObjectNoSync, DLPackSetError, DLTensor,
};
use dlbridge::{Access, DType, Device, Tensor};
use dlbridge_pyo3::{Allocator, PyTensor, TensorObject};
use dlbridge_testing::CountingOwner;
use pyo3::exceptions::PyValueError;
use pyo3::exceptions::{PyBufferError, PyKeyError, PyMemoryError, PyNotImplementedError};
use pyo3::prelude::*;

/// A table with these two callbacks, for as long as the process lives.
fn table(
    allocator: Option<DLPackManagedTensorAllocator>,
    to_object: Option<DLPackManagedTensorToPyObjectNoSync>,
) -> &'static DLPackExchangeAPI {
    unsafe extern "C" fn stream(_: DLDeviceType, _: i32, _: *mut *mut c_void) -> c_int {
        0
    }
    let table = empty_table();
    table.managed_tensor_allocator = allocator;
    table.managed_tensor_to_py_object_no_sync = to_object;
    table.current_work_stream = Some(stream);
    table
}

fn like(object: &Bound<'_, PyAny>, tensor: Tensor) -> PyResult<Py<PyAny>> {
    Ok(PyTensor::from(tensor).to_caller(object)?.unbind())
}

#[test]
fn a_table_that_refuses_leaves_the_tensor_to_be_released_once() {
    unsafe extern "C" fn raises(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
        // SAFETY: called with the interpreter attached.
        let py = unsafe { Python::assume_attached() };
        PyKeyError::new_err("not today").restore(py);
        -1
    }
    unsafe extern "C" fn fails(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
        -1
    }
    Python::attach(|py| {
        let outcome = |to_object| {
            let owner = CountingOwner::new([1_u8, 2]);
            let drops = owner.drops();
            let tensor = Tensor::builder(owner).build::<u8>().expect("legal");
            let error = like(&object_with(py, table(None, Some(to_object))), tensor)
                .expect_err("the table refuses");
            assert_eq!(drops.count(), 1);
            error
        };
        assert!(outcome(raises).is_instance_of::<PyKeyError>(py));
        let silent = outcome(fails);
        assert!(silent.is_instance_of::<PyBufferError>(py), "{silent}");
        assert!(silent.to_string().contains("without a reason"), "{silent}");
    });
}

#[test]
fn a_table_that_consumes_a_tensor_and_returns_null_is_an_error_and_keeps_the_tensor() {
    unsafe extern "C" fn takes(
        tensor: *mut DLManagedTensorVersioned,
        _: *mut *mut c_void,
    ) -> c_int {
        // SAFETY: given to this function, which says that it took it.
        drop(unsafe { Tensor::from_raw(tensor) });
        0
    }
    Python::attach(|py| {
        let owner = CountingOwner::new([1_u8, 2]);
        let drops = owner.drops();
        let tensor = Tensor::builder(owner).build::<u8>().expect("legal");
        let error = like(&object_with(py, table(None, Some(takes))), tensor).expect_err("nothing");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert_eq!(drops.count(), 1);
    });
}

#[test]
fn read_only_memory_does_not_go_through_a_table_that_may_forget_it() {
    unsafe extern "C" fn never(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
        unreachable!("read-only memory is not given to a table of others")
    }
    Python::attach(|py| {
        let frozen = || Tensor::from(std::sync::Arc::<[u8]>::from([1, 2]));
        let error =
            like(&object_with(py, table(None, Some(never))), frozen()).expect_err("refused");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("pass a copy: np.array(x)"), "{error}");
        // Our own keeps it.
        let ours = Bound::new(py, TensorObject::new(Tensor::from(vec![1_u8]))).expect("an object");
        let same = like(ours.as_any(), frozen()).expect("a dlbridge.Tensor");
        assert!(
            same.bind(py).getattr("readonly").expect("it has one").is_truthy().expect("a bool")
        );
    });
}

#[test]
fn what_has_no_framework_gets_an_array_of_numpy() {
    Python::attach(|py| {
        let without = object_with(py, table(None, None));
        let list = pyo3::types::PyList::empty(py).into_any();
        for object in [without, list] {
            let array = like(&object, Tensor::from(vec![1_u8])).expect("NumPy is installed");
            assert_eq!(array.bind(py).get_type().to_string(), "<class 'numpy.ndarray'>");
        }
    });
}

#[test]
fn a_type_s_own_from_dlpack_is_found_and_its_exception_kept() {
    Python::attach(|py| {
        let code = c"
class Base:
    @staticmethod
    def from_dlpack(x):
        if x.dtype == 'float64':
            raise ValueError('no float64 here')
        return ('made', x.dtype)

class Derived(Base):
    def __array_namespace__(self):
        raise AttributeError('none for this one')
";
        let module = PyModule::from_code(py, code, c"kinds.py", c"kinds").expect("it runs");
        let object = module.getattr("Derived").expect("a class").call0().expect("an object");
        let made = like(&object, Tensor::from(vec![1_u8, 2])).expect("it takes uint8");
        assert_eq!(made.bind(py).to_string(), "('made', 'uint8')");
        let read_only = Tensor::from(std::sync::Arc::<[u8]>::from([1, 2]));
        let error = like(&object, read_only).expect_err("nobody knows what it does with it");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        let error = like(&object, Tensor::from(vec![1.0])).expect_err("it takes no float64");
        assert!(error.is_instance_of::<PyValueError>(py), "{error}");
    });
}

/// An allocator of our own table, whose memory looks like a foreign one's.
unsafe extern "C" fn dirty(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    _: *mut c_void,
    _: Option<DLPackSetError>,
) -> c_int {
    // SAFETY: a prototype with a shape, as the test below asks for.
    let prototype = unsafe { &*prototype };
    // SAFETY: the same.
    let extent = unsafe { *prototype.shape };
    let memory = Tensor::from(vec![0xdead_beef_u32; extent as usize]);
    // SAFETY: a place to write to.
    unsafe { out.write(memory.into_raw()) };
    0
}

/// A framework may show memory of its allocator to Python code, which keeps it.
#[test]
fn host_memory_is_rusts_whatever_the_table_has() {
    Python::attach(|py| {
        let object = object_with(py, table(Some(dirty), None));
        let mut tensor = Allocator::of(&object).zeros::<u32>(&[3]).expect("Rust allocates");
        assert_eq!(tensor.access(), Access::Exclusive);
        assert!(dlbridge::ffi::raw_fields(&tensor).is_none(), "it is Rust's memory");
        assert_eq!(tensor.data_ptr().addr() % 64, 0);
        assert_eq!(tensor.as_slice_mut::<u32>().expect("exclusive"), [0; 3]);
        let pinned = Device::new(dlbridge::DeviceKind::CUDA_HOST, 0);
        let error = Allocator::of(&object).allocate(DType::U32, [3], pinned);
        assert!(
            PyErr::from(error.expect_err("no pinned memory")).to_string().contains("cuda_host")
        );
    });
}

#[test]
fn allocated_memory_is_compared_with_the_request() {
    Python::attach(|py| {
        let object = object_with(py, table(Some(dirty), None));
        let error = Allocator::of(&object).allocate(DType::F64, [3], Device::cuda(0));
        let error = error.expect_err("it gives uint32");
        let error = PyErr::from(error);
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        let said = error.to_string();
        assert!(said.contains("found uint32[3]") && said.contains("expected float64[3]"), "{said}");
    });
}

#[test]
fn a_table_without_an_allocator_leaves_host_memory_to_us_and_refuses_devices() {
    unsafe extern "C" fn stub(
        _: *mut DLTensor,
        _: *mut *mut DLManagedTensorVersioned,
        _: *mut c_void,
        _: Option<DLPackSetError>,
    ) -> c_int {
        // SAFETY: called with the interpreter attached.
        let py = unsafe { Python::assume_attached() };
        PyNotImplementedError::new_err("no allocator").restore(py);
        -1
    }
    Python::attach(|py| {
        for allocator in [None, Some(stub as DLPackManagedTensorAllocator)] {
            let object = object_with(py, table(allocator, None));
            let tensor = Allocator::of(&object).zeros::<f32>(&[2, 2]).expect("our own memory");
            assert_eq!(tensor.as_slice::<f32>().expect("ours alone"), [0.0; 4]);
            let elsewhere = Allocator::of(&object).allocate(DType::F32, [2], Device::cuda(0));
            let error = PyErr::from(elsewhere.expect_err("not there"));
            assert!(error.to_string().contains("allocates on, found cuda:0"), "{error}");
        }
    });
}

/// Fails as a table would that says `kind` and `message`.
macro_rules! failing {
    ($kind:expr, $message:expr) => {{
        unsafe extern "C" fn fails(
            _: *mut DLTensor,
            _: *mut *mut DLManagedTensorVersioned,
            context: *mut c_void,
            set_error: Option<DLPackSetError>,
        ) -> c_int {
            let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
            let (kind, message): (*const c_char, _) = (pointer($kind), pointer($message));
            // SAFETY: texts that outlive the call, and the caller's own context.
            unsafe { set_error.expect("we give one")(context, kind, message) };
            -1
        }
        Some(fails as DLPackManagedTensorAllocator)
    }};
}

#[test]
fn a_failing_allocator_is_an_exception_that_says_why() {
    Python::attach(|py| {
        let outcome = |allocator| {
            let object = object_with(py, table(allocator, None));
            let error = Allocator::of(&object).allocate(DType::F32, [2], Device::cuda(0));
            let error = PyErr::from(error.expect_err("it fails"));
            assert!(error.to_string().contains("float32[2] on cuda:0"), "{error}");
            (error.is_instance_of::<PyMemoryError>(py), error.to_string())
        };
        const TRACE: &CStr = c"CUDA out of memory. Tried to allocate 1 TiB\nraised from ...";
        let (is_memory, said) = outcome(failing!(Some(c"MemoryError"), Some(TRACE)));
        assert!(is_memory && said.ends_with("Tried to allocate 1 TiB"), "{said}");
        let (is_memory, said) = outcome(failing!(Some(c"MemoryError"), Some(c"\nno such dtype")));
        assert!(!is_memory && said.ends_with("no such dtype"), "{said}");
        let (is_memory, said) = outcome(failing!(None, None));
        assert!(!is_memory && said.ends_with("it gave no reason"), "{said}");
    });
}

/// Memory that PyTorch does not have was a `MemoryError`, which a user of PyTorch does not catch.
#[test]
fn memory_that_a_framework_lacks_is_its_own_exception() {
    Python::attach(|py| {
        let module = PyModule::from_code(
            py,
            c"class OutOfMemoryError(RuntimeError): pass",
            c"lacking.py",
            c"lacking",
        )
        .expect("a module");
        let modules = py.import("sys").and_then(|sys| sys.getattr("modules")).expect("a dict");
        modules.set_item("lacking", &module).expect("a dict");
        let allocator = failing!(Some(c"MemoryError"), Some(c"CUDA out of memory."));
        let object = object_with(py, table(allocator, None));
        object.get_type().setattr("__module__", "lacking.arrays").expect("a class");
        let error = Allocator::of(&object).allocate(DType::F32, [2], Device::cuda(0));
        let error = PyErr::from(error.expect_err("it fails"));
        assert_eq!(
            error.to_string(),
            "OutOfMemoryError: allocator: cannot allocate float32[2] on cuda:0: CUDA out of memory."
        );
    });
}

#[test]
fn impossible_shapes_never_reach_an_allocator() {
    Python::attach(|py| {
        let object = object_with(py, table(failing!(Some(c"MemoryError"), None), None));
        for shape in [&[-1_i64][..], &[i64::MAX, 2]] {
            let error = Allocator::of(&object).zeros::<f32>(shape).expect_err("no such shape");
            assert!(matches!(error, dlbridge_pyo3::Error::Tensor(_)), "{error}");
        }
    });
}

#[test]
fn our_own_kind_needs_no_table() {
    Python::attach(|py| {
        let ours = Bound::new(py, TensorObject::new(Tensor::from(vec![1_u8]))).expect("an object");
        let tensor = Allocator::of(ours.as_any()).zeros::<i16>(&[2]).expect("host memory");
        assert!(dlbridge::ffi::raw_fields(&tensor).is_none());
        let address = tensor.data_ptr().addr();
        let object = tensor.to_caller(ours.as_any()).expect("a dlbridge.Tensor");
        assert!(table_of(&object).managed_tensor_allocator.is_some());
        let found = object.getattr("data_ptr").expect("it has one").extract::<usize>();
        assert_eq!(found.expect("a number"), address);
    });
}

#[test]
fn device_memory_comes_from_the_namespace_of_the_array() {
    let code = c"
class Namespace:
    float32 = 'its own name for it'

    def __init__(self, made, keywords):
        self.made, self.keywords = made, keywords

    def empty(self, shape, **keywords):
        if not keywords.keys() <= self.keywords:
            raise TypeError('a keyword that it does not know')
        assert keywords['dtype'] == self.float32
        return self.made

class Array:
    device = 'the first one'

    def __init__(self, *arguments):
        self.namespace = Namespace(*arguments)

    def __array_namespace__(self):
        return self.namespace
";
    Python::attach(|py| {
        let module = PyModule::from_code(py, code, c"gpu.py", c"gpu").expect("it runs");
        let builder = Tensor::builder(()).dtype(DType::F32).shape([2, 3]);
        let nowhere = ptr::without_provenance_mut(0x7000);
        // SAFETY: nobody reads or writes there.
        let made = unsafe { builder.build_raw(nowhere, Device::cuda(0), dlbridge::Flags::NONE) };
        let made = TensorObject::new(made.expect("legal"));
        let made = Bound::new(py, made).expect("an object");
        for keywords in [&["dtype", "device"][..], &["dtype"]] {
            let keywords = pyo3::types::PySet::new(py, keywords).expect("a set");
            let array = module.getattr("Array").expect("a class");
            let array = array.call1((&made, keywords)).expect("an object");
            let allocator = Allocator::of(&array);
            let allocate = |shape, device| allocator.allocate(DType::F32, shape, device);
            let tensor = allocate(&[2, 3], Device::cuda(0)).expect("what it made");
            assert_eq!((tensor.data_ptr(), tensor.access()), (nowhere, Access::Shared));
            for (shape, device) in [(&[2, 3], Device::cuda(1)), (&[3, 2], Device::cuda(0))] {
                let error = PyErr::from(allocate(shape, device).expect_err("it made another"));
                assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
            }
            // Of what is not known, host memory is not taken: nobody knows who else has it.
            let host = allocator.zeros::<f32>(&[2, 3]).expect("our own memory");
            assert_eq!((host.device(), host.access()), (Device::CPU, Access::Exclusive));
        }
    });
}

#[test]
fn a_framework_that_would_crash_is_not_asked_about_devices_that_it_may_not_have() {
    unsafe extern "C" fn never(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
        unreachable!("it is not asked")
    }
    Python::attach(|py| {
        let object = object_with(py, table(failing!(None, None), Some(never)));
        // As Paddle says it on the host: without a number.
        let code = c"lambda self: (1, None)";
        let device = py.eval(code, None, None).expect("a function");
        object.get_type().setattr("__dlpack_device__", device).expect("a class takes it");
        object.get_type().setattr("__module__", "paddle.of_a_test").expect("a class takes it");
        let builder = Tensor::builder(()).dtype(DType::F32).shape([2]);
        let nowhere = ptr::without_provenance_mut(0x7000);
        // SAFETY: nobody reads or writes there.
        let tensor = unsafe { builder.build_raw(nowhere, Device::cuda(0), dlbridge::Flags::NONE) };
        let error = like(&object, tensor.expect("legal")).expect_err("it is on the host");
        assert!(error.to_string().contains("device: expected cpu, where"), "{error}");
        let error = Allocator::of(&object).allocate(DType::F32, [2], Device::cuda(0));
        let error = PyErr::from(error.expect_err("it is on the host"));
        assert!(error.to_string().contains("device: expected cpu, where"), "{error}");
    });
}
