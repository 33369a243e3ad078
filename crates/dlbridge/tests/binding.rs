//! Tensors that a language binding drops, and exports that come back from another library.
//! The binding of Python is tested in `dlbridge-pyo3`. One binding is that of the whole process.
#![allow(unsafe_code, reason = "raw tensors are unsafe by nature")]

use std::cell::Cell;
use std::mem;
use std::sync::Mutex;

use dlbridge::Tensor;
use dlbridge::ffi::{Binding, KeepAlive, try_from_raw_bound};
use dlbridge::sys::DLManagedTensor;
use dlbridge_testing::{CountingOwner, Foreign, Releases};

thread_local! {
    /// Whether this thread may call deleters.
    static MAY_DELETE: Cell<bool> = const { Cell::new(false) };
}

static WAITING: Mutex<Vec<Tensor>> = Mutex::new(Vec::new());

static BINDING: Binding = Binding {
    may_delete: || MAY_DELETE.get(),
    release: |tensor| WAITING.lock().expect("no panic").push(tensor.into()),
};

/// Held by a test, since all of them use one queue.
static TURN: Mutex<()> = Mutex::new(());

fn bound(foreign: Foreign) -> (Tensor, Releases) {
    let releases = foreign.releases();
    // SAFETY: legal, and exported.
    let tensor = unsafe { try_from_raw_bound(foreign.into_versioned(), || &BINDING) };
    (tensor.expect("legal"), releases)
}

fn numbers() -> Foreign {
    Foreign::new(&[3], &[1_i32, 2, 3])
}

#[track_caller]
fn wait_and_release(releases: &Releases, what: &str) {
    releases.expect(0, what);
    let waiting = mem::take(&mut *WAITING.lock().expect("no panic"));
    assert_eq!(waiting.len(), 1, "{what}");
    drop(waiting);
    releases.expect(1, what);
}

#[test]
fn a_bound_tensor_waits_for_its_binding_whatever_became_of_it() {
    let _turn = TURN.lock();
    type Kind = (&'static str, fn(Tensor));
    let kinds: [Kind; 6] = [
        ("itself", drop),
        ("counted", |tensor| {
            let first = tensor.into_shared();
            drop((first.clone(), first));
        }),
        ("counted and alone again", |tensor| drop(tensor.into_shared().into_inner())),
        ("frozen", |tensor| drop(Tensor::from(tensor.into_frozen()))),
        ("exported", |tensor| {
            // SAFETY: exported just now.
            unsafe { dlbridge::ffi::release_raw(tensor.into_raw()) };
        }),
        ("exported before 1.0", |tensor| {
            // SAFETY: the same.
            unsafe { dlbridge::ffi::release_raw(tensor.into_raw_legacy().expect("writable")) };
        }),
    ];
    for (what, drop_it) in kinds {
        let (tensor, releases) = bound(numbers());
        drop_it(tensor);
        wait_and_release(&releases, what);
    }
}

#[test]
fn a_bound_tensor_without_strides_is_deferred() {
    let _turn = TURN.lock();
    let (tensor, releases) = bound(numbers().null_strides());
    assert_eq!(tensor.strides(), [1]);
    drop(tensor);
    wait_and_release(&releases, "described again");
}

#[test]
fn a_legacy_tensor_is_bound_alike() {
    let _turn = TURN.lock();
    let foreign = numbers();
    let releases = foreign.releases();
    // SAFETY: legal, and exported.
    let tensor = unsafe { try_from_raw_bound(foreign.into_legacy(), || &BINDING) };
    drop(tensor.expect("legal"));
    wait_and_release(&releases, "before 1.0");
}

#[test]
fn a_bound_tensor_is_dropped_at_once_where_its_binding_says_so() {
    let _turn = TURN.lock();
    let (tensor, releases) = bound(numbers());
    MAY_DELETE.set(true);
    drop(tensor);
    MAY_DELETE.set(false);
    releases.expect(1, "on a thread that may");
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
mod ended {
    use std::ffi::c_void;
    use std::sync::Barrier;
    use std::{ptr, thread};

    use dlbridge::ffi::{from_owner_raw, on_unwind, release_raw};
    use dlbridge::sys::DLManagedTensor;
    use dlbridge::{Flags, Tensor};

    use super::numbers;

    unsafe extern "C-unwind" {
        fn pthread_exit(value: *mut c_void) -> !;
    }

    type Unwinding = unsafe extern "C-unwind" fn(*mut DLManagedTensor);
    type Deleter = unsafe extern "C" fn(*mut DLManagedTensor);

    /// As Python's `PyGILState_Ensure` ends a thread.
    unsafe extern "C-unwind" fn end(_: *mut DLManagedTensor) {
        // SAFETY: on a thread of a test.
        unsafe { pthread_exit(ptr::null_mut()) }
    }

    /// An owner whose drop does the same.
    struct Ends;

    impl Drop for Ends {
        fn drop(&mut self) {
            // SAFETY: the same.
            unsafe { pthread_exit(ptr::null_mut()) }
        }
    }

    /// A tensor whose deleter ends the thread.
    fn ending() -> Tensor {
        let managed = numbers().into_legacy();
        // SAFETY: the same ABI, but for unwinding.
        let deleter = unsafe { std::mem::transmute::<Unwinding, Deleter>(end) };
        // SAFETY: legal, and exported just now.
        unsafe { (*managed).deleter = Some(deleter) };
        // SAFETY: the same.
        unsafe { Tensor::from_raw(managed) }.expect("legal")
    }

    fn owned() -> Tensor {
        let numbers = Tensor::from(vec![1_u8]);
        // SAFETY: alive, and not used.
        let descriptor = unsafe { &*dlbridge::ffi::descriptor(&numbers) };
        // SAFETY: no code reads the numbers.
        unsafe { from_owner_raw(Ends, descriptor, Flags::NONE) }.expect("legal")
    }

    static STOPPED: Barrier = Barrier::new(2);

    /// The process aborted in a `catch_unwind`: the first time in that of the thread, then in those of
    /// deleters.
    #[test]
    fn a_thread_that_a_deleter_ends_stops() {
        on_unwind(|| {
            STOPPED.wait();
        });
        let released: [fn(); 3] = [
            || drop(ending()),
            // SAFETY: exported just now.
            || unsafe { release_raw(Tensor::from(ending().into_shared()).into_raw()) },
            // SAFETY: exported just now.
            || unsafe { release_raw(owned().into_raw()) },
        ];
        for release in released {
            thread::spawn(release);
            STOPPED.wait();
        }
    }
}

#[test]
fn an_export_that_came_back_is_kept_without_the_object_around_it() {
    let owner = CountingOwner::new([1_u8, 2, 3]);
    let drops = owner.drops();
    let first = Tensor::builder(owner).build::<u8>().expect("legal").into_shared();
    let mut last = Tensor::from(first.clone()).into_raw();
    drop(first);
    for _ in 0..3 {
        // SAFETY: alive, and exported only below.
        let keep = unsafe { KeepAlive::of_raw(last) }.expect("our own export");
        // SAFETY: alive, as above.
        let descriptor = unsafe { &(*last).dl_tensor };
        // SAFETY: `keep` keeps the memory that this describes.
        let again =
            unsafe { dlbridge::ffi::from_owner_raw(keep, descriptor, dlbridge::Flags::NONE) };
        let again = Tensor::from(again.expect("legal").into_shared()).into_raw();
        // SAFETY: exported by its tensor, and deleted once.
        unsafe { dlbridge::ffi::release_raw(last) };
        last = again;
        assert_eq!(drops.count(), 0);
    }
    // SAFETY: the same.
    let keep = unsafe { KeepAlive::of_raw(last) }.expect("our own export");
    // SAFETY: the same.
    unsafe { dlbridge::ffi::release_raw(last) };
    assert_eq!(drops.count(), 0);
    std::thread::spawn(move || drop(keep)).join().expect("no panic");
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_producers_tensor_is_no_export_of_this_library() {
    let managed = numbers().into_versioned();
    // SAFETY: legal, and alive.
    assert!(unsafe { KeepAlive::of_raw(managed) }.is_none());
    // SAFETY: null is permitted.
    assert!(unsafe { KeepAlive::of_raw(std::ptr::null_mut::<DLManagedTensor>()) }.is_none());
    // SAFETY: owned by the test.
    unsafe { dlbridge::ffi::release_raw(managed) };
}
