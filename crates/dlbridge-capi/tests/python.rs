//! The Python side, in a Python that this program starts itself.
//! Frameworks beyond NumPy belong to the tests of the packages.
#![cfg(unix)]
#![allow(unsafe_code, reason = "plays the host of a Python")]

#[path = "python/host.rs"]
mod host;

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use dlbridge_capi::*;
use host::Host;

static RELEASED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn release(_: *mut c_void) {
    RELEASED.fetch_add(1, Ordering::SeqCst);
}

fn released() -> usize {
    RELEASED.load(Ordering::SeqCst)
}

fn last_error() -> String {
    // SAFETY: a string that lives until the next failure on this thread.
    unsafe { CStr::from_ptr(dlb_last_error()) }.to_str().unwrap().to_owned()
}

/// Imports what an expression gives.
fn import(host: &Host, code: &str) -> Result<*mut TensorHandle, (Status, String)> {
    let object = host.eval(code);
    let mut tensor = ptr::null_mut();
    // SAFETY: a live object, on the thread that started Python.
    let status = unsafe { dlb_from_python(object, ptr::null(), &mut tensor) };
    host.drop(object);
    assert!(host.is_calm(), "no exception stays set");
    if status == Status::Ok { Ok(tensor) } else { Err((status, last_error())) }
}

fn info<'a>(tensor: *mut TensorHandle) -> &'a TensorInfo {
    // SAFETY: the tests release a tensor when they are done with it.
    let info = unsafe { dlb_tensor_info(tensor) };
    // SAFETY: it belongs to the tensor.
    unsafe { &*info }
}

fn free(tensor: *mut TensorHandle) {
    // SAFETY: each test releases what it imported, once.
    unsafe { dlb_release(tensor) };
}

/// Two numbers that count their release.
fn export(flags: u64) -> *mut TensorHandle {
    host::export(DLB_DEVICE_CPU, flags, Some(release))
}

/// One interpreter, one thread: the parts run one after the other.
#[test]
fn python_objects_come_and_go() {
    let host = match Host::start() {
        Ok(host) => host,
        Err(reason) => return eprintln!("skipped: {reason}"),
    };
    lists_that_change_during_an_export_are_read_once(&host);
    arrays_are_imported_and_released(&host);
    capsules_are_consumed_once(&host);
    producers_are_asked_once(&host);
    an_object_that_cannot_be_imported_is_an_error_with_the_reason(&host);
    exports_are_imported_any_number_of_times(&host);
    an_unused_capsule_releases_its_tensor(&host);
    a_failed_call_consumes_nothing(&host);
    drains_wait_for_the_lock(&host);
}

/// The first export makes a class. CPython 3.11 collects garbage while it does, which runs code that changes the lists.
fn lists_that_change_during_an_export_are_read_once(host: &Host) {
    static mut SHAPE: [i64; 1] = [2];
    let shape = &raw mut SHAPE;
    host.run(&format!(
        "import ctypes, gc\nshape = ctypes.c_int64.from_address({})\n\
         def change(phase, info): shape.value = -5\n\
         gc.callbacks.append(change)\nold = gc.get_threshold()\ngc.set_threshold(1)\nshape.value = 2",
        shape.addr()
    ));
    let memory =
        Memory { shape: shape.cast(), ndim: 1, ..host::memory(DLB_DEVICE_CPU, 0, Some(release)) };
    let mut object = ptr::null_mut();
    // SAFETY: static numbers, and a list that only this thread changes.
    let status = unsafe { dlb_export_python(&memory, &mut object) };
    host.run("gc.callbacks.clear()\ngc.set_threshold(*old)");
    assert_eq!((status, released()), (Status::Ok, 0), "{}", last_error());
    host.drop(object);
    assert_eq!(RELEASED.swap(0, Ordering::SeqCst), 1);
}

fn arrays_are_imported_and_released(host: &Host) {
    host.run("import weakref, numpy as np\na = np.arange(6, dtype='int16').reshape(2, 3)[:, ::-1]");
    host.run("watch = weakref.ref(a)");
    let tensor = import(host, "a").unwrap();
    host.run("del a");
    let found = info(tensor);
    // SAFETY: as many numbers as the info says.
    let shape = unsafe { found.shape.cast::<[i64; 2]>().read() };
    // SAFETY: the same.
    let strides = unsafe { found.strides.cast::<[i64; 2]>().read() };
    assert_eq!((shape, strides), ([2, 3], [3, -1]));
    assert_eq!(found.dtype, DataType { code: 0, bits: 16, lanes: 1 });
    assert_eq!((found.is_row_major, found.is_column_major, found.is_host), (0, 0, 1));
    // SAFETY: the array's first number.
    assert_eq!(unsafe { found.data.cast::<i16>().read() }, 2);
    assert!(host.truth("watch() is not None"));
    free(tensor);
    assert!(host.truth("watch() is None"));

    host.run("r = np.zeros(2); r.flags.writeable = False");
    let tensor = import(host, "r").unwrap();
    assert_eq!(info(tensor).flags & 1, 1);
    free(tensor);
}

fn capsules_are_consumed_once(host: &Host) {
    for arguments in ["", "max_version=(1, 0)"] {
        host.run(&format!("c = np.ones(2).__dlpack__({arguments})"));
        free(import(host, "c").unwrap());
        assert!(host.truth("'used_dltensor' in repr(c)"));
        let (status, message) = import(host, "c").unwrap_err();
        assert_eq!(status, Status::Unsupported);
        assert!(message.contains("consumed already"), "{message}");
    }
}

fn producers_are_asked_once(host: &Host) {
    host.run(
        "class Old:\n calls = 0\n def __dlpack__(self, stream=None):\n  Old.calls += 1\n  return np.ones(2).__dlpack__()\n\
         class Broken:\n calls = 0\n def __dlpack__(self, **k):\n  Broken.calls += 1\n  raise TypeError('inside')",
    );
    free(import(host, "Old()").unwrap());
    assert!(host.truth("Old.calls == 1"));
    let refused = import(host, "Broken()").unwrap_err();
    assert_eq!(refused, (Status::Python, "TypeError: inside".to_owned()));
    assert!(host.truth("Broken.calls == 1"));
}

fn an_object_that_cannot_be_imported_is_an_error_with_the_reason(host: &Host) {
    let (status, message) = import(host, "'text'").unwrap_err();
    assert_eq!(status, Status::Unsupported);
    assert_eq!(message, "object: expected one with __dlpack__, or a capsule, found <class 'str'>");
    host.run("class Odd:\n def __dlpack__(self, **k): return 1");
    let (status, message) = import(host, "Odd()").unwrap_err();
    assert_eq!(status, Status::Unsupported);
    assert!(message.ends_with("found <class 'int'>"), "{message}");
    // SAFETY: null is refused.
    let status = unsafe { dlb_from_python(ptr::null_mut(), ptr::null(), ptr::null_mut()) };
    assert_eq!(status, Status::Invalid);
    let object = host.eval("np.ones(2)") as usize;
    let other = std::thread::spawn(move || {
        let mut tensor = ptr::null_mut();
        // SAFETY: a live object; this thread is not attached, which is refused.
        (
            // SAFETY: the same.
            unsafe { dlb_from_python(object as *mut PyObject, ptr::null(), &mut tensor) },
            last_error(),
        )
    });
    let (status, message) = other.join().unwrap();
    assert_eq!(status, Status::NotAttached);
    assert!(message.contains("expected a thread that is attached"), "{message}");
    host.drop(object as *mut PyObject);
}

fn exports_are_imported_any_number_of_times(host: &Host) {
    let before = released();
    let mut object = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(export(0), &mut object) }, Status::Ok);
    host.set("o", object);
    host.drop(object);
    host.run("x, y = np.from_dlpack(o), np.from_dlpack(o, copy=True)");
    assert!(host.truth("x.tolist() == y.tolist() == [1, 2] and x.flags.writeable"));
    assert!(host.truth("o.__dlpack_device__() == (1, 0)"));
    host.run("del o");
    assert_eq!(released(), before);
    host.run("del x");
    assert_eq!(released(), before + 1);
    // The copy is nobody's but its own.
    host.run("del y");
    // An exception on its way is still there after a release.
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(export(0), &mut object) }, Status::Ok);
    host.set("o", object);
    host.drop(object);
    host.run("def drop():\n global o\n try: raise KeyError('mine')\n finally: del o\ntry: drop()\nexcept KeyError as e: kept = e");
    assert!(host.truth("kept.args == ('mine',)"));
    assert_eq!(released(), before + 2);
}

fn an_unused_capsule_releases_its_tensor(host: &Host) {
    let before = released();
    for versioned in [0, 1] {
        let mut capsule = ptr::null_mut();
        // SAFETY: exported, and owned here.
        let status = unsafe { dlb_into_capsule(export(0), versioned, &mut capsule) };
        assert_eq!(status, Status::Ok);
        host.drop(capsule);
    }
    assert_eq!(released(), before + 2);
}

fn a_failed_call_consumes_nothing(host: &Host) {
    let before = released();
    let tensor = export(1);
    let mut capsule = ptr::null_mut();
    // SAFETY: a live tensor; read-only memory has no place in the legacy ABI.
    let status = unsafe { dlb_into_capsule(tensor, 0, &mut capsule) };
    assert_eq!(status, Status::Refused);
    assert!(capsule.is_null() && last_error().contains("read-only"));
    assert_eq!(released(), before);
    // SAFETY: still the caller's, and consumed now.
    assert_eq!(unsafe { dlb_into_capsule(tensor, 1, &mut capsule) }, Status::Ok);
    host.drop(capsule);
    assert_eq!(released(), before + 1);
    let mut object = ptr::null_mut();
    // SAFETY: exported, and owned here.
    assert_eq!(unsafe { dlb_into_python(export(1), &mut object) }, Status::Ok);
    host.set("o", object);
    host.drop(object);
    host.run("try: o.__dlpack__()\nexcept BufferError as e: said = str(e)");
    assert!(host.truth("'read-only' in said and not np.from_dlpack(o).flags.writeable"));
    host.run("del o");
    assert_eq!(released(), before + 2);
}

fn drains_wait_for_the_lock(host: &Host) {
    host.run("a = np.ones(2); watch = weakref.ref(a)");
    let tensor = import(host, "a").unwrap();
    host.run("del a");
    // SAFETY: no wake function.
    let queue = unsafe { dlb_queue_new(None, ptr::null_mut()) };
    // SAFETY: given up.
    assert_eq!(unsafe { dlb_queue_release(queue, tensor) }, Status::Ok);
    let address = queue as usize;
    let other = std::thread::spawn(move || {
        // SAFETY: a live queue.
        unsafe { dlb_queue_drain(address as *mut ReleaseQueue) }
    });
    assert_eq!(other.join().unwrap(), 0);
    assert!(host.truth("watch() is not None"));
    // SAFETY: a live queue.
    assert_eq!(unsafe { dlb_queue_drain(queue) }, 1);
    assert!(host.truth("watch() is None"));
    // SAFETY: given up.
    unsafe { dlb_queue_close(queue) };
}
