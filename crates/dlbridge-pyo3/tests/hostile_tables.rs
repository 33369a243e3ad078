//! Exchange tables that do something wrong, one fault each: what is raised, and who releases.
//! `docs/hostile.md` lists all faults; those of `__dlpack__` are in `python/tests`.
#![allow(unsafe_code, reason = "tables of C functions are unsafe by nature")]

mod common;

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use dlbridge::sys::{
    DLManagedTensorVersioned, DLPackExchangeAPI, DLPackManagedTensorFromPyObjectNoSync,
    DLPackSetError, DLPackVersion, DLTensor,
};
use dlbridge::{Access, DType, Device, Flags, Tensor};
use dlbridge_pyo3::{Allocator, ImportOptions, PyTensor, TensorObject, import};
use dlbridge_testing::{Foreign, Releases};
use pyo3::exceptions::{PyBufferError, PyKeyError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use common::{empty_table, object_with};

type FromObject = DLPackManagedTensorFromPyObjectNoSync;

fn table(from_object: Option<FromObject>) -> &'static DLPackExchangeAPI {
    let table = empty_table();
    table.managed_tensor_from_py_object_no_sync = from_object;
    table
}

thread_local! {
    /// What the next callback gives.
    static NEXT: RefCell<Option<Foreign>> = const { RefCell::new(None) };
    /// What a callback gave although it failed.
    static GIVEN: Cell<*mut DLManagedTensorVersioned> = const { Cell::new(ptr::null_mut()) };
}

fn pair() -> Foreign {
    Foreign::new(&[2], &[1.0_f32, 2.0])
}

fn next(foreign: Foreign) -> Releases {
    let releases = foreign.releases();
    NEXT.set(Some(foreign));
    releases
}

fn set_exception() {
    // SAFETY: the tests call with the interpreter attached.
    let py = unsafe { Python::assume_attached() };
    PyKeyError::new_err("of the producer").restore(py);
}

unsafe extern "C" fn gives(_: *mut c_void, out: *mut *mut DLManagedTensorVersioned) -> c_int {
    let next = NEXT.take().expect("the test says what");
    // SAFETY: a place to write to.
    unsafe { out.write(next.into_versioned()) };
    0
}

unsafe extern "C" fn gives_and_raises(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    set_exception();
    // SAFETY: as we were called.
    unsafe { gives(object, out) }
}

unsafe extern "C" fn fails_and_gives(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    // SAFETY: as we were called.
    unsafe { gives(object, out) };
    // SAFETY: written just now.
    GIVEN.set(unsafe { *out });
    -1
}

unsafe extern "C" fn fails(_: *mut c_void, _: *mut *mut DLManagedTensorVersioned) -> c_int {
    -1
}

unsafe extern "C" fn raises(_: *mut c_void, _: *mut *mut DLManagedTensorVersioned) -> c_int {
    set_exception();
    -1
}

unsafe extern "C" fn gives_nothing(_: *mut c_void, _: *mut *mut DLManagedTensorVersioned) -> c_int {
    0
}

/// What an import through a table gives.
fn import_by(py: Python<'_>, table: &'static DLPackExchangeAPI) -> Result<Tensor, PyErr> {
    let object = object_with(py, table);
    Ok(import(object.as_borrowed(), ImportOptions::default())?.tensor)
}

#[track_caller]
fn calm(py: Python<'_>) {
    assert!(PyErr::take(py).is_none(), "no exception stays set");
}

/// The fuzz target `gate` has each field.
#[test]
fn a_wrong_field_of_a_tables_tensor_is_named_and_the_tensor_released_once() {
    Python::attach(|py| {
        let releases = next(pair().ndim(-1));
        let error = import_by(py, table(Some(gives))).map(drop).expect_err("refused");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("ndim: expected 0 to 64, found -1"), "{error}");
        releases.expect(1, "refused");
        calm(py);
    });
}

#[test]
fn a_table_that_fails_without_an_exception_is_a_buffer_error() {
    Python::attach(|py| {
        let error = import_by(py, table(Some(fails))).map(drop).expect_err("it fails");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("its exchange table failed without a reason"));
        let error = import_by(py, table(Some(raises))).map(drop).expect_err("it raises");
        assert!(error.is_instance_of::<PyKeyError>(py), "{error}");
        calm(py);
    });
}

#[test]
fn a_table_that_returns_null_is_a_buffer_error() {
    Python::attach(|py| {
        let error = import_by(py, table(Some(gives_nothing))).map(drop);
        let error = error.expect_err("there is no tensor");
        assert!(error.is_instance_of::<PyBufferError>(py), "{error}");
        assert!(error.to_string().contains("null pointer"), "{error}");
        calm(py);
    });
}

#[test]
fn what_a_failing_table_gives_stays_the_tables() {
    Python::attach(|py| {
        let releases = next(pair());
        let error = import_by(py, table(Some(fails_and_gives))).map(drop);
        assert!(error.expect_err("it fails").is_instance_of::<PyBufferError>(py));
        releases.expect(0, "never consumed");
        // SAFETY: nobody took it.
        drop(unsafe { Tensor::from_raw(GIVEN.take()) });
        releases.expect(1, "by the test");
    });
}

#[test]
fn a_table_that_succeeds_with_an_exception_set_still_returns_a_tensor() {
    Python::attach(|py| {
        let releases = next(pair());
        let tensor = import_by(py, table(Some(gives_and_raises))).expect("it gives one");
        // It breaks a rule of Python, whose next check of a result finds it.
        assert!(PyErr::take(py).is_some_and(|error| error.is_instance_of::<PyKeyError>(py)));
        assert_eq!(tensor.view::<f32>().expect("host").to_vec(), [1.0, 2.0]);
        drop(tensor);
        releases.expect(1, "dropped");
    });
}

#[test]
fn a_table_of_another_version_or_in_a_circle_is_not_used() {
    Python::attach(|py| {
        let none_usable = |table| {
            let error = import_by(py, table).map(drop).expect_err("there is no other way");
            assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
            calm(py);
        };
        for major in [0, 2, u32::MAX] {
            let newer = empty_table();
            newer.header.version = DLPackVersion { major, minor: 3 };
            newer.managed_tensor_from_py_object_no_sync = Some(gives);
            none_usable(newer);
        }
        let circle: *mut DLPackExchangeAPI = empty_table();
        // SAFETY: it lives as long as the process, and nobody else has it yet.
        let table = unsafe { &mut *circle };
        table.header.version = DLPackVersion { major: 2, minor: 0 };
        table.header.prev_api = circle.cast();
        none_usable(table);
    });
}

#[test]
fn a_newer_minor_version_of_a_table_is_used() {
    Python::attach(|py| {
        let newer = empty_table();
        newer.header.version = DLPackVersion { major: 1, minor: 99 };
        newer.managed_tensor_from_py_object_no_sync = Some(gives);
        let releases = next(pair());
        drop(import_by(py, newer).expect("the layout is the same"));
        releases.expect(1, "dropped");
    });
}

#[test]
fn a_table_of_null_callbacks_is_not_used() {
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_from_py_object_no_sync = None;
        let object = object_with(py, table);
        let error = import(object.as_borrowed(), ImportOptions::default()).map(drop);
        let error = PyErr::from(error.expect_err("there is no other way"));
        assert!(error.is_instance_of::<PyTypeError>(py), "{error}");
        let array = PyTensor::new(vec![1_u8]).to_caller(&object).expect("NumPy is installed");
        assert_eq!(array.get_type().to_string(), "<class 'numpy.ndarray'>");
        let memory = Allocator::of(&object).zeros::<u8>(&[2]).expect("our own");
        assert!(dlbridge::ffi::raw_fields(&memory).is_none());
        calm(py);
    });
}

/// What an allocator gives is what `NEXT` holds.
unsafe extern "C" fn allocates(
    _: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    _: *mut c_void,
    _: Option<DLPackSetError>,
) -> c_int {
    // SAFETY: as we were called.
    unsafe { gives(ptr::null_mut(), out) }
}

unsafe extern "C" fn allocates_nothing(
    _: *mut DLTensor,
    _: *mut *mut DLManagedTensorVersioned,
    _: *mut c_void,
    _: Option<DLPackSetError>,
) -> c_int {
    0
}

#[test]
fn wrong_memory_of_an_allocator_is_refused_and_released_once() {
    let device = Device::cuda(0);
    let two = |value: f32| Foreign::new(&[2], &[value; 2]).device(device);
    let wrong = [
        ("another number of axes", Foreign::new(&[1, 2], &[0.0_f32; 2]).device(device)),
        ("another extent", Foreign::new(&[3], &[0.0_f32; 3]).device(device)),
        ("another type", Foreign::new(&[2], &[0.0_f64; 2]).device(device)),
        ("another device", two(0.0).device(Device::CPU)),
        ("read-only", two(0.0).flags(Flags::READ_ONLY)),
        ("with gaps", Foreign::new(&[2], &[0.0_f32; 4]).strides(&[2]).device(device)),
        ("impossible", two(0.0).ndim(-1)),
    ];
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_allocator = Some(allocates);
        let object = object_with(py, table);
        for (what, foreign) in wrong {
            let releases = next(foreign);
            let error =
                Allocator::of(&object).allocate(DType::F32, [2], device).map(drop).expect_err(what);
            assert!(PyErr::from(error).is_instance_of::<PyBufferError>(py), "{what}");
            releases.expect(1, what);
            calm(py);
        }
        let releases = next(two(7.0));
        let made =
            Allocator::of(&object).allocate(DType::F32, [2], device).expect("as it was asked for");
        assert_eq!((made.device(), made.access()), (device, Access::Exclusive));
        drop(made);
        releases.expect(1, "dropped");
        let table = empty_table();
        table.managed_tensor_allocator = Some(allocates_nothing);
        let error =
            Allocator::of(&object_with(py, table)).allocate(DType::F32, [2], device).map(drop);
        let error = PyErr::from(error.expect_err("there is none"));
        assert!(error.to_string().contains("null pointer"), "{error}");
    });
}

// Deleters that do something wrong while Python looks on.

type Deleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

thread_local! {
    /// How often `raising_deleter` ran, and whether it ever saw an exception.
    static DELETED: Cell<(usize, bool)> = const { Cell::new((0, false)) };
    /// The deleter that `raising_deleter` stands before.
    static OWN: Cell<Option<Deleter>> = const { Cell::new(None) };
}

/// A deleter written as a careless extension would: it leaves an exception behind.
unsafe extern "C" fn raising_deleter(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tests delete with the interpreter attached.
    let saw = !unsafe { ffi::PyErr_Occurred() }.is_null();
    let (count, seen) = DELETED.get();
    DELETED.set((count + 1, seen || saw));
    // SAFETY: as above.
    let py = unsafe { Python::assume_attached() };
    PyKeyError::new_err("of the deleter").restore(py);
    // SAFETY: called with its own tensor, once for each time that this one is called.
    unsafe { OWN.get().expect("the test keeps it")(tensor) };
}

/// A tensor with `raising_deleter`.
fn careless(foreign: Foreign) -> *mut DLManagedTensorVersioned {
    let managed = foreign.into_versioned();
    // SAFETY: owned by the test.
    OWN.set(unsafe { &mut *managed }.deleter.replace(raising_deleter));
    DELETED.set((0, false));
    managed
}

fn careless_tensor() -> (Tensor, Releases) {
    let foreign = pair();
    let releases = foreign.releases();
    // SAFETY: legal, and exported.
    (unsafe { Tensor::from_raw(careless(foreign)) }.expect("legal"), releases)
}

/// A Python object over a tensor with `raising_deleter`.
fn object_of_a_careless_producer(py: Python<'_>) -> (Py<TensorObject>, Releases) {
    let (tensor, releases) = careless_tensor();
    (Py::new(py, TensorObject::new(tensor)).expect("an object"), releases)
}

unsafe extern "C" fn gives_a_broken_one(
    _: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    // SAFETY: a place to write to.
    unsafe { out.write(careless(pair().ndim(-1))) };
    0
}

unsafe extern "C" fn makes_nothing(_: *mut DLManagedTensorVersioned, _: *mut *mut c_void) -> c_int {
    -1
}

#[track_caller]
#[test]
fn a_deleter_leaves_no_exception_behind_an_object() {
    Python::attach(|py| {
        let (object, releases) = object_of_a_careless_producer(py);
        drop(object.into_bound(py));
        calm(py);
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "the object is gone");
    });
}

#[test]
fn a_deleter_neither_sees_nor_changes_a_pending_exception() {
    Python::attach(|py| {
        let (object, releases) = object_of_a_careless_producer(py);
        let object = object.into_bound(py);
        PyTypeError::new_err("on its way").restore(py);
        drop(object);
        let kept = PyErr::take(py).expect("it is still on its way");
        assert!(kept.is_instance_of::<PyTypeError>(py), "{kept}");
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "the object is gone");
    });
}

#[test]
fn the_deleter_of_a_rejected_tensor_leaves_no_exception() {
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_from_py_object_no_sync = Some(gives_a_broken_one);
        let object = object_with(py, table);
        let result = import(object.as_borrowed(), ImportOptions::default()).map(drop);
        calm(py);
        assert!(PyErr::from(result.expect_err("broken")).is_instance_of::<PyBufferError>(py));
        assert_eq!(DELETED.get(), (1, false));
    });
}

#[test]
fn the_deleter_of_a_tensor_that_a_table_refuses_leaves_no_exception() {
    Python::attach(|py| {
        let table = empty_table();
        table.managed_tensor_to_py_object_no_sync = Some(makes_nothing);
        let (tensor, releases) = careless_tensor();
        let result = PyTensor::from(tensor).to_caller(&object_with(py, table)).map(drop);
        calm(py);
        assert!(PyErr::from(result.expect_err("refused")).is_instance_of::<PyBufferError>(py));
        assert_eq!(DELETED.get(), (1, false));
        releases.expect(1, "refused");
    });
}
