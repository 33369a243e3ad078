//! CUDA slices of `cudarc` 0.19 in Python: consumers' streams wait for the slice's own, unasked.
//! The tests need no GPU: they run in a process with a fake driver, which works as late as CUDA permits.
#![cfg(feature = "cudarc-0_19")]
#![allow(unsafe_code, reason = "a fake framework with an exchange table")]

mod common;

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{object_with, table_of, take};
use dlbridge::ffi::from_owner_raw;
use dlbridge::sys::{DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLTensor};
use dlbridge::{ArcTensor, DType, Device, Flags, Tensor, cudarc_0_19};
use dlbridge_pyo3::{
    Allocator, Borrow, ExportDlpack, PyTensor, Result, Stream, TensorObject, dlpack_methods,
};
use dlbridge_testing::{FakeDriver, Foreign};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

/// A slice of ones on a stream of its own that has done nothing yet, and the number of another
/// stream. What is read on the other one is read by `read`.
struct Late {
    tensor: Tensor,
    number: usize,
    read: Read,
}

type Read = Box<dyn Fn(&Tensor) -> Vec<u8>>;

fn late() -> Late {
    let context = cudarc_0_19::context(Device::cuda(0)).expect("the fake driver");
    let (theirs, ours) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut slice = theirs.alloc_zeros::<u8>(4).unwrap();
    theirs.synchronize().unwrap();
    theirs.memcpy_htod(&[1_u8; 4], &mut slice).unwrap();
    let number = ours.cu_stream().addr();
    let read = move |tensor: &Tensor| {
        let read = cudarc_0_19::with_slice::<u8, _>(tensor, &ours, |slice| ours.clone_dtoh(slice));
        read.expect("bytes of this device").expect("a copy")
    };
    let tensor = Tensor::try_from(slice).expect("it fits");
    Late { tensor, number, read: Box::new(read) }
}

/// What `__dlpack__` gives for a stream.
fn capsule(object: &Bound<'_, PyAny>, stream: Option<usize>) -> PyTensor {
    let keywords = [("max_version", (1_u32, 3_u32))].into_py_dict(object.py()).unwrap();
    keywords.set_item("stream", stream).unwrap();
    let capsule = object.call_method("__dlpack__", (), Some(&keywords)).expect("it is exported");
    capsule.extract().expect("a tensor")
}

/// A user's class, which gives what it keeps.
#[pyclass(frozen)]
struct Signal {
    samples: ArcTensor,
}

impl ExportDlpack for Signal {
    const BORROW: Option<Borrow<Self>> = Some(Borrow::new(|signal| &signal.samples));

    fn tensor(&self) -> Result<Tensor> {
        Ok(Tensor::from(self.samples.clone()))
    }
}

dlpack_methods!(Signal);

/// The object that a tensor becomes, and one of a user's class.
fn kinds(py: Python<'_>) -> [(Bound<'_, PyAny>, Late); 2] {
    let mut plain = late();
    let tensor = std::mem::replace(&mut plain.tensor, Tensor::from(vec![0_u8]));
    let object = PyTensor::from(tensor).into_pyobject(py).unwrap().into_any();
    let mut users = late();
    let tensor = std::mem::replace(&mut users.tensor, Tensor::from(vec![0_u8]));
    let signal = Signal { samples: tensor.into_shared() };
    [(object, plain), (Bound::new(py, signal).unwrap().into_any(), users)]
}

#[test]
#[ignore = "needs a driver"]
fn the_stream_asked_for_waits() {
    Python::attach(|py| {
        for (object, Late { number, read, .. }) in kinds(py) {
            assert_eq!(read(&capsule(&object, Some(number))), [1; 4], "{object}");
        }
    });
}

#[test]
#[ignore = "needs a driver"]
fn the_default_stream_waits_for_those_who_ask_for_none() {
    let default = cudarc_0_19::context(Device::cuda(0)).unwrap().default_stream();
    let read = |tensor: &Tensor| {
        let read =
            cudarc_0_19::with_slice::<u8, _>(tensor, &default, |slice| default.clone_dtoh(slice));
        read.expect("bytes of this device").expect("a copy")
    };
    Python::attach(|py| {
        for (object, _late) in kinds(py) {
            assert_eq!(read(&capsule(&object, None)), [1; 4], "{object}");
        }
        for (object, _late) in kinds(py) {
            let tensor = take(table_of(&object), &object).expect("it is exported");
            assert_eq!(read(&tensor), [1; 4], "{object}: by the exchange table");
        }
        for (object, _late) in kinds(py) {
            let descriptor = common::borrow(table_of(&object), &object).expect("it is borrowed");
            // SAFETY: the object lives longer, and nobody writes.
            let borrowed = unsafe { from_owner_raw((), &descriptor, Flags::NONE) }.expect("legal");
            assert_eq!(read(&borrowed), [1; 4], "{object}: borrowed");
        }
    });
}

#[test]
#[ignore = "needs a driver"]
fn nobody_waits_who_says_so() {
    Python::attach(|py| {
        let Late { tensor, read, .. } = late();
        let object = PyTensor::from(tensor).into_pyobject(py).unwrap().into_any();
        let keywords = PyDict::new(py);
        keywords.set_item("stream", -1).unwrap();
        let given = object.call_method("__dlpack__", (), Some(&keywords)).unwrap();
        assert_eq!(read(&given.extract::<PyTensor>().unwrap()), [0; 4], "the driver is late");

        let Late { tensor, read, number } = late();
        let object = PyTensor::from(tensor).ready_after(Stream::NO_SYNC).unwrap();
        let object = Bound::new(py, object).unwrap().into_any();
        assert_eq!(read(&capsule(&object, Some(number))), [0; 4], "the caller's own word");
    });
}

/// The stream that the framework below works on.
static CURRENT: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn current(_: DLDeviceType, _: i32, out: *mut *mut c_void) -> i32 {
    let handle = std::ptr::without_provenance_mut(CURRENT.load(Ordering::Relaxed));
    // SAFETY: the caller gives a place to write to.
    unsafe { out.write(handle) };
    0
}

#[test]
#[ignore = "needs a driver"]
fn the_frameworks_stream_waits_for_an_array_of_its_kind() {
    Python::attach(|py| {
        let ours = Bound::new(py, TensorObject::new(Tensor::from(vec![0_u8]))).unwrap();
        let table = DLPackExchangeAPI { current_work_stream: Some(current), ..*table_of(&ours) };
        let object = object_with(py, Box::leak(Box::new(table)));
        let Late { tensor, number, read } = late();
        CURRENT.store(number, Ordering::Relaxed);
        let array = PyTensor::from(tensor).to_caller(&object).expect("the table takes it");
        let array = array.cast::<TensorObject>().expect("of our own table's kind");
        assert_eq!(read(&array.get().to_tensor().expect("no writer")), [1; 4]);
    });
}

/// Memory of a framework that works on a stream of its own: the work that writes `byte` there is queued last.
fn frameworks_memory(byte: u8) -> *mut DLManagedTensorVersioned {
    let context = cudarc_0_19::context(Device::cuda(0)).expect("the fake driver");
    let stream = context.new_stream().unwrap();
    let mut slice = stream.alloc_zeros::<u8>(4).unwrap();
    stream.synchronize().unwrap();
    stream.memcpy_htod(&[byte; 4], &mut slice).unwrap();
    CURRENT.store(stream.cu_stream().addr(), Ordering::Relaxed);
    let tensor = Box::leak(Box::new(Tensor::try_from(slice).expect("it fits")));
    let data = tensor.data_ptr();
    Foreign::new(&[4], &[0_u8]).device(Device::cuda(0)).data(data).into_versioned()
}

unsafe extern "C" fn gives(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> i32 {
    // SAFETY: the caller gives a place to write to.
    unsafe { out.write(frameworks_memory(7)) };
    0
}

unsafe extern "C" fn allocates(
    _: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    _: *mut c_void,
    _: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>,
) -> i32 {
    // SAFETY: the caller gives a place to write to.
    unsafe { out.write(frameworks_memory(3)) };
    0
}

/// An array of a framework, whose table has these functions.
fn array(py: Python<'_>) -> Bound<'_, PyAny> {
    let ours = Bound::new(py, TensorObject::new(Tensor::from(vec![0_u8]))).unwrap();
    let table = DLPackExchangeAPI {
        current_work_stream: Some(current),
        managed_tensor_from_py_object_no_sync: Some(gives),
        managed_tensor_allocator: Some(allocates),
        ..*table_of(&ours)
    };
    object_with(py, Box::leak(Box::new(table)))
}

/// `PyTensor` dropped the stream of its import, so that a kernel on a stream of one's own read too early.
#[test]
#[ignore = "needs a driver"]
fn an_argument_is_read_after_the_stream_of_its_framework() {
    Python::attach(|py| {
        let context = cudarc_0_19::context(Device::cuda(0)).expect("the fake driver");
        let ours = context.new_stream().unwrap();
        let tensor: PyTensor = array(py).extract().expect("a tensor");
        let read = cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
        assert_eq!(read.expect("bytes of this device").expect("a copy"), [7; 4]);
    });
}

/// Memory of the framework's allocator was written before its stream had done with it: `full_like` read 3.0 for 7.0.
#[test]
#[ignore = "needs a driver"]
fn allocated_memory_is_written_after_the_stream_of_its_framework() {
    Python::attach(|py| {
        let context = cudarc_0_19::context(Device::cuda(0)).expect("the fake driver");
        let ours = context.default_stream();
        let (array, device) = (array(py), Device::cuda(0));
        let allocator = Allocator::of(&array);
        let mut tensor = allocator.allocate(DType::U8, [4], device).expect("memory");
        let written = cudarc_0_19::with_view_mut::<u8, _>(&mut tensor, &ours, |mut view| {
            ours.memcpy_htod(&[7_u8; 4], &mut view)
        });
        written.expect("exclusive").expect("a copy");
        let theirs = CURRENT.load(Ordering::Relaxed);
        assert_eq!(
            allocator.stream(device).unwrap().number_on(device).unwrap(),
            Some(theirs as i64)
        );
        // SAFETY: the framework's stream, which is never destroyed.
        let theirs =
            unsafe { context.wrap_borrowed_stream(std::ptr::without_provenance_mut(theirs)) };
        theirs.synchronize().unwrap();
        let read = cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
        assert_eq!(read.expect("bytes of this device").expect("a copy"), [7; 4]);
    });
}

/// How many tests need the driver.
const TESTS: usize = 6;

#[test]
fn the_tests_pass_with_a_fake_driver() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    let said = driver.rerun(&["--ignored"]);
    assert!(said.contains(&format!("{TESTS} passed; 0 failed")), "{said}");
    let said = driver.rerun_with(&[("FAKE_DRIVER_FORGETS", "cuStreamWaitEvent")], &["--ignored"]);
    assert!(said.contains(&format!("1 passed; {} failed", TESTS - 1)), "{said}");
}
