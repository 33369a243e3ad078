//! Tensors that are made of tensors a million times: memory stays as it is, and releasing them
//! takes no more of the stack than releasing two.
#![allow(unsafe_code, reason = "a global allocator is unsafe by nature")]

#[path = "it/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{import, take_back, take_back_legacy};
use dlbridge::{Access, Tensor, TensorRef, ffi};
use dlbridge_testing::{CountingOwner, Foreign, PanicOnDrop, Releases};

const ROUNDS: usize = if cfg!(miri) { 40 } else { 1_000_000 };
/// Rounds through C, which take several allocations each: a million of them without debug assertions.
const MIXED: usize = if cfg!(debug_assertions) { ROUNDS / 50 } else { ROUNDS };
/// Rounds of chains that nothing can shorten.
const LONG: usize = if cfg!(miri) { 40 } else { 50_000 };
/// So small that a recursive release does not fit.
const STACK: usize = 256 << 10;

thread_local!(static LIVE: Cell<isize> = const { Cell::new(0) });

struct Recorder;

fn record(size: isize) {
    let _ = LIVE.try_with(|live| live.set(live.get() + size));
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Recorder {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        record(layout.size() as isize);
        // SAFETY: the caller's duty.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        record(-(layout.size() as isize));
        // SAFETY: the caller's duty.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static RECORDER: Recorder = Recorder;

fn with_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(STACK).spawn(test).expect("a thread");
    thread.join().expect("no panic, and no overflow");
}

/// Runs the same steps again and again: in constant memory, over the same elements, which are
/// released with the last tensor.
fn rounds(count: usize, step: impl Fn(Tensor) -> Tensor + Copy + Send + 'static) {
    for make in [counted, counted_and_shared, foreign] {
        with_small_stack(move || {
            let (mut tensor, releases) = make();
            let start = tensor.data_ptr();
            for _ in 0..4 {
                tensor = step(tensor);
            }
            let before = LIVE.get();
            for _ in 0..count {
                tensor = step(tensor);
            }
            assert!(LIVE.get() - before < 4096, "{} bytes more", LIVE.get() - before);
            assert_eq!(tensor.data_ptr(), start);
            assert_eq!(tensor.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
            releases.expect(0, "in use");
            drop(tensor);
            releases.expect(1, "released");
        });
    }
}

fn counted() -> (Tensor, Releases) {
    let owner = CountingOwner::new([1, 2, 3]);
    let drops = owner.drops();
    (Tensor::builder(owner).build::<i32>().expect("it fits"), drops)
}

fn counted_and_shared() -> (Tensor, Releases) {
    let (tensor, drops) = counted();
    (tensor.into_shared().into(), drops)
}

fn foreign() -> (Tensor, Releases) {
    let foreign = Foreign::new(&[3], &[1, 2, 3]);
    let releases = foreign.releases();
    (import(foreign).expect("legal"), releases)
}

/// Long chains of tensors over tensors overflowed the stack when freed.
#[test]
fn shares_of_shares_are_one_share() {
    rounds(ROUNDS, |tensor| Tensor::from(tensor.into_frozen()));
}

#[test]
fn handles_of_handles_are_one_handle() {
    rounds(ROUNDS, |tensor| Tensor::from(tensor.into_shared()));
    rounds(ROUNDS, |tensor| Tensor::from(tensor.into_shared().clone()));
}

#[test]
fn tensors_that_come_back_from_c_do_not_grow() {
    rounds(MIXED, |tensor| take_back(tensor.into_raw()));
    rounds(MIXED, |tensor| {
        take_back_legacy(Tensor::from(tensor.into_shared()).into_raw_legacy().expect("writable"))
    });
    rounds(MIXED, |tensor| {
        let tensor = take_back(Tensor::from(tensor.into_shared()).into_raw());
        let tensor = take_back_legacy(tensor.into_raw_legacy().expect("writable"));
        // SAFETY: exported by this test, from memory that may be written (T8).
        unsafe { tensor.assume_writable() }
    });
}

#[test]
fn tensors_that_come_back_without_strides_do_not_grow() {
    rounds(MIXED, |tensor| {
        let exported = tensor.into_raw();
        // SAFETY: alive, owned by the test, and of contiguous elements.
        unsafe { (*exported).dl_tensor.strides = std::ptr::null_mut() };
        take_back(exported)
    });
}

#[test]
fn mixed_rounds_do_not_grow() {
    rounds(MIXED, |tensor| take_back(Tensor::from(tensor.into_frozen()).into_raw()));
    rounds(MIXED, |tensor| take_back(Tensor::from(tensor.into_shared()).into_raw()));
    // As `dlbridge.from_dlpack` does with a `dlbridge.Tensor`.
    rounds(MIXED, |tensor| take_back(Tensor::from(tensor.into_shared().clone()).into_raw()));
    rounds(MIXED, |tensor| {
        let shared = tensor.into_shared();
        let exported = Tensor::from(shared.clone()).into_raw();
        drop(shared);
        take_back(exported)
    });
    rounds(MIXED, |tensor| {
        let shared = take_back(Tensor::from(tensor.into_frozen()).into_raw()).into_shared();
        let exported = Tensor::from(shared.clone()).into_raw();
        drop(shared);
        Tensor::from(take_back(exported).into_frozen())
    });
}

#[test]
fn a_share_of_a_share_is_written_by_nobody() {
    let (tensor, _) = counted();
    let first = tensor.into_frozen();
    let share = Tensor::from(first.clone()).into_shared();
    let mut second = Tensor::from(share.clone());
    assert_eq!(second.access(), Access::Frozen);
    assert!(second.view_mut::<i32>().is_err());
    // The first stays in use when the tensor in between is gone.
    drop(share);
    assert!(first.into_inner().is_none());
    assert_eq!(second.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn a_tensor_back_from_c_returns_no_owner() {
    let shared = Tensor::from(vec![1, 2, 3]).into_shared();
    let exported = Tensor::from(shared.clone()).into_raw();
    drop(shared);
    let again = take_back(exported).into_shared().into_inner().expect("the only handle");
    let again = again.into_owner::<Vec<i32>>().expect_err("C may have kept its address");
    assert_eq!(again.view::<i32>().expect("int32").to_vec(), [1, 2, 3]);
}

/// A chain of tensors that own each other, which nothing shortens.
fn chain(step: impl Fn(Tensor) -> Tensor + Send + 'static) {
    with_small_stack(move || {
        let owner = CountingOwner::new([1_u8, 2, 3]);
        let drops = owner.drops();
        let mut tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
        for _ in 0..LONG {
            tensor = step(tensor);
        }
        assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2, 3][..]));
        drop(tensor);
        drops.expect(1, "released");
    });
}

/// A tensor whose owner is a tensor.
fn around(tensor: Tensor) -> Tensor {
    let described = tensor.as_raw();
    // SAFETY: described by the tensor, which is the only owner.
    let around = unsafe { ffi::from_holder_raw(|| tensor, &described, dlbridge::Flags::NONE) };
    // SAFETY: the same.
    unsafe { ffi::assume_class(around.expect("our own"), Access::Exclusive) }
}

#[test]
fn owners_that_hold_tensors_are_released_without_recursion() {
    chain(|tensor| {
        let slice = tensor.into_slice::<u8>().expect("bytes");
        Tensor::builder(slice).build_read_only::<u8>().expect("as many")
    });
    chain(|tensor| {
        let slice = tensor.into_slice_mut::<u8>().expect("bytes");
        Tensor::builder(slice).build::<u8>().expect("as many")
    });
    chain(around);
}

/// A user's owner that keeps a tensor beside its own bytes.
struct Keeps(#[allow(dead_code, reason = "kept alive")] Box<dyn Send>, Vec<u8>);

impl AsMut<[u8]> for Keeps {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.1
    }
}

/// A user's type that lends its tensor.
struct Lends(Tensor);

impl<'a> From<&'a Lends> for TensorRef<'a> {
    fn from(lends: &'a Lends) -> Self {
        lends.0.as_tensor_ref()
    }
}

/// A chain of 20,000 users' owners that each hold a tensor overflowed the stack when it was
/// dropped.
#[test]
fn owners_of_users_are_released_without_recursion() {
    let keeps = |kept: Box<dyn Send>| Tensor::builder(Keeps(kept, vec![1, 2, 3])).build::<u8>();
    chain(move |tensor| keeps(Box::new(tensor)).expect("three bytes"));
    chain(move |tensor| keeps(Box::new(vec![tensor.into_shared()])).expect("three bytes"));
    chain(move |tensor| keeps(Box::new(tensor.into_slice::<u8>())).expect("three bytes"));
    chain(|tensor| Tensor::from_guard(Arc::new(Lends(tensor))));
    chain(|tensor| Tensor::from_guard(Box::new(Lends(tensor))));
}

/// Waits for the end of the tensor that it drops.
struct Waits(Option<Tensor>, Arc<AtomicBool>, Arc<AtomicBool>);

impl AsMut<[u8]> for Waits {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut []
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        let has_inner = self.0.take().is_some();
        assert!(!has_inner || self.1.load(Ordering::Relaxed), "the tensor inside is released");
        self.2.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_owner_waits_for_sixteen_levels_inside_it() {
    let mut inner = (None, Arc::default());
    for _ in 0..16 {
        let released = Arc::default();
        let owner = Waits(inner.0, inner.1, Arc::clone(&released));
        inner = (Some(Tensor::builder(owner).build::<u8>().expect("empty")), released);
    }
    drop(inner.0);
    assert!(inner.1.load(Ordering::Relaxed));
}

#[cfg(feature = "arrow-60")]
#[test]
fn buffers_of_arrow_are_released_without_recursion() {
    chain(|tensor| Tensor::from(arrow_buffer::Buffer::try_from(tensor).expect("bytes")));
}

#[cfg(feature = "bytes-1")]
#[test]
fn bytes_are_released_without_recursion() {
    chain(|tensor| Tensor::from(bytes::Bytes::try_from(tensor).expect("bytes")));
}

#[cfg(feature = "burn-0_22")]
#[test]
fn bytes_of_burn_are_released_without_recursion() {
    chain(|tensor| {
        let bytes = burn_std::Bytes::try_from(tensor).expect("bytes");
        Tensor::try_from(bytes).expect("resident")
    });
}

#[test]
fn a_panic_deep_inside_comes_out_when_all_is_released() {
    let (one, drops) = counted();
    let owner = CountingOwner::new([1, 2, 3]).panic_on_drop();
    let panicking = Tensor::builder(owner).build::<i32>().expect("it fits").into_shared();
    let inner = around(around(panicking.into()));
    let described = one.as_raw();
    // SAFETY: the owner keeps it alive.
    let outer = unsafe { ffi::from_owner_raw((inner, one), &described, dlbridge::Flags::NONE) };
    let outer = around(outer.expect("our own"));
    let payload = catch_unwind(AssertUnwindSafe(|| drop(outer))).expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&PanicOnDrop));
    drops.expect(1, "released all the same");
    // The next release begins anew.
    let (tensor, drops) = counted();
    drop(around(tensor));
    drops.expect(1, "released");
}
