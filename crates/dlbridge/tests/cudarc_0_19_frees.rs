//! When the memory of a `cudarc` slice is freed that consumers in other languages had: behind all work that
//! reads it. The tests run in child processes with a fake driver, which ends a process that reads freed memory.
#![cfg(all(feature = "cudarc-0_19", target_os = "linux", not(miri)))]
#![allow(unsafe_code, reason = "a consumer, and calls of the driver")]

use std::sync::Arc;
use std::{env, fs, ptr, thread};

use cudarc::driver::sys::{self, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, result};
use dlbridge::{Device, Tensor, cudarc_0_19};
use dlbridge_testing::FakeDriver;

const LEN: usize = 64;

fn context() -> Arc<CudaContext> {
    cudarc_0_19::context(Device::cuda(0)).expect("the fake driver")
}

/// Sevens, whose copy is queued on a stream of their own.
fn sevens(context: &Arc<CudaContext>) -> CudaSlice<u8> {
    let stream = context.new_stream().expect("a stream");
    stream.clone_htod(&[7_u8; LEN]).expect("memory")
}

/// What a consumer in another language has: a managed tensor. Its work is queued on a stream that waits for
/// the producer's.
struct Consumer(*mut dlbridge::sys::DLManagedTensorVersioned);

// SAFETY: a deleter may be called on any thread.
unsafe impl Send for Consumer {}

impl Consumer {
    fn new(slice: CudaSlice<u8>) -> Self {
        Self(Tensor::try_from(slice).expect("it fits").into_raw())
    }

    /// Queues a copy to `to`.
    fn reads(&self, to: &CudaSlice<u8>, producer: &CudaStream, stream: &CudaStream) {
        stream.join(producer).expect("ordered");
        // SAFETY: a managed tensor that was not deleted.
        let from = unsafe { (*self.0).dl_tensor.data }.addr() as u64;
        let to = cudarc::driver::DevicePtr::device_ptr(to, stream).0;
        // SAFETY: as many bytes each, alive until the stream has run this.
        unsafe { result::memcpy_dtod_async(to, from, LEN, stream.cu_stream()) }.expect("queued");
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        // SAFETY: not deleted.
        let deleter = unsafe { (*self.0).deleter }.expect("it has one");
        // SAFETY: called once, as a consumer does.
        unsafe { deleter(self.0) }
    }
}

/// Makes a slice, lets `stream` read it, and drops it by `end` while that work is queued.
fn read_late(stream: &Arc<CudaStream>, end: impl FnOnce(Consumer)) -> Vec<u8> {
    let slice = sevens(stream.context());
    let producer = Arc::clone(slice.stream());
    let read = stream.alloc_zeros::<u8>(LEN).expect("memory");
    let consumer = Consumer::new(slice);
    consumer.reads(&read, &producer, stream);
    drop(producer);
    end(consumer);
    stream.clone_dtoh(&read).expect("a copy")
}

#[test]
#[ignore = "needs a driver"]
fn memory_is_freed_behind_the_work_that_reads_it() {
    let context = context();
    let streams = [context.new_stream().expect("a stream"), context.default_stream()];
    for _ in 0..100 {
        for stream in &streams {
            assert_eq!(read_late(stream, drop), [7; LEN]);
            let there = |consumer| thread::spawn(move || drop(consumer)).join().expect("no panic");
            assert_eq!(read_late(stream, there), [7; LEN], "dropped on a fresh thread");
        }
    }
}

#[test]
#[ignore = "needs a driver"]
fn a_stream_that_was_destroyed_has_read_it() {
    let context = context();
    let ours = context.new_stream().expect("a stream");
    let slice = sevens(&context);
    let producer = Arc::clone(slice.stream());
    let read = ours.alloc_zeros::<u8>(LEN).expect("memory");
    let consumer = Consumer::new(slice);
    let other = context.new_stream().expect("a stream");
    other.join(&ours).expect("ordered");
    consumer.reads(&read, &producer, &other);
    drop(other);
    drop(consumer);
    assert_eq!(ours.clone_dtoh(&read).expect("a copy"), [7; LEN]);
}

#[test]
#[ignore = "needs a driver"]
fn the_context_of_the_thread_stays() {
    let context = context();
    let consumer = Consumer::new(sevens(&context));
    thread::spawn(move || {
        drop(consumer);
        assert_eq!(result::ctx::get_current(), Ok(None), "there was none");
    })
    .join()
    .expect("no panic");
    let consumer = Consumer::new(sevens(&context));
    let second = cudarc_0_19::context(Device::cuda(1)).expect("a second device");
    second.bind_to_thread().expect("current");
    drop(consumer);
    assert_eq!(result::ctx::get_current(), Ok(Some(second.cu_ctx())));
}

#[test]
#[ignore = "needs a driver"]
fn calls_restore_the_context_of_the_thread() {
    let second = cudarc_0_19::context(Device::cuda(1)).expect("a second device");
    second.bind_to_thread().expect("current");
    let stays = |doing: &str| {
        assert_eq!(result::ctx::get_current(), Ok(Some(second.cu_ctx())), "{doing}");
    };
    let context = context();
    stays("context");
    let made =
        cudarc_0_19::on_device(Device::cuda(0), |context| (sevens(context), context.new_stream()));
    let (slice, ours) = made.expect("the fake driver");
    let ours = ours.expect("a stream");
    stays("on_device");
    let tensor = Tensor::try_from(slice).expect("it fits");
    stays("from a slice");
    cudarc_0_19::join_stream(&tensor, &ours).expect("ordered");
    stays("join_stream");
    cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |_| ()).expect("bytes");
    stays("with_slice");
    drop(cudarc_0_19::OwnedSlice::<u8>::new(tensor, &ours).expect("bytes"));
    stays("OwnedSlice");
    drop(context);
}

thread_local! {
    /// The current stream of a framework.
    static CURRENT: std::cell::Cell<*mut std::ffi::c_void> =
        const { std::cell::Cell::new(ptr::null_mut()) };
}

#[test]
#[ignore = "needs a driver"]
fn a_capture_of_the_frameworks_stream_is_left_whole() {
    let context = context();
    cudarc_0_19::set_captures(|_| {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: a stream that lives as long as the test, and a place for the answer.
        unsafe { sys::cuStreamIsCapturing(CURRENT.get().cast(), &raw mut status) };
        status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    });
    let stream = context.new_stream().expect("a stream");
    CURRENT.set(stream.cu_stream().cast());
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        let slice = sevens(&context);
        let (producer, consumer) = (Arc::clone(slice.stream()), Consumer::new(slice));
        // SAFETY: a stream of the test's own.
        unsafe { result::stream::begin_capture(stream.cu_stream(), mode) }.expect("it captures");
        drop(consumer);
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: the same, and a place for the answer.
        unsafe { sys::cuStreamIsCapturing(stream.cu_stream(), &raw mut status) };
        assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, "{mode:?}");
        // SAFETY: the same.
        unsafe { result::stream::end_capture(stream.cu_stream()) }.expect("it is whole");
        assert!(Arc::strong_count(&producer) > 1, "the slice waits");
        drop(Tensor::try_from(sevens(&context)).expect("it fits"));
        assert_eq!(Arc::strong_count(&producer), 1, "the next export frees it");
    }
}

#[test]
#[ignore = "needs a driver"]
fn a_slice_that_never_left_rust_is_freed_on_its_own_stream() {
    let context = context();
    let tensor = Tensor::try_from(sevens(&context)).expect("it fits");
    let log = env::var_os("FAKE_DRIVER_LOG").expect("set");
    fs::write(&log, "").expect("a file");
    drop(tensor);
    let calls = fs::read_to_string(&log).expect("a file");
    assert!(calls.contains("cuMemFreeAsync"));
    assert!(
        !calls.contains("cuCtxRecordEvent") && !calls.contains("cuStreamIsCapturing"),
        "{calls}"
    );
}

#[test]
#[ignore = "needs a driver"]
fn a_drop_costs_so_many_calls() {
    let context = context();
    let keeps_the_stream = sevens(&context);
    let slice = keeps_the_stream.stream().clone_htod(&[7_u8; LEN]).expect("memory");
    let consumer = Consumer::new(slice);
    let log = env::var_os("FAKE_DRIVER_LOG").expect("set");
    fs::write(&log, "").expect("a file");
    drop(consumer);
    let calls = fs::read_to_string(&log).expect("a file");
    let count = |name: &str| calls.lines().filter(|call| call.starts_with(name)).count();
    // docs/guide/gpu.md says the number.
    assert_eq!(calls.lines().count(), 19, "{calls}");
    assert_eq!(
        (count("cuCtxRecordEvent"), count("cuMemFreeAsync"), count("cuCtxSynchronize")),
        (1, 1, 0)
    );
}

#[test]
#[ignore = "needs a driver"]
fn a_forked_child_frees_nothing() {
    let context = context();
    let (consumer, slice) = (Consumer::new(sevens(&context)), sevens(&context));
    let tensor = Tensor::try_from(slice).expect("it fits");
    // SAFETY: the child drops values and ends.
    let child = unsafe { libc_fork() };
    if child == 0 {
        drop((consumer, tensor));
        // SAFETY: ends the child without running what the parent registered.
        unsafe { _exit(0) };
    }
    let mut status = -1;
    // SAFETY: a child of this process, and a place for its status.
    unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "it ended by itself");
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

/// Runs each test that needs a driver in a process of its own.
fn passes(driver: &FakeDriver, test: &str) {
    let log = env::temp_dir().join(format!("dlbridge-frees-{}-{test}", std::process::id()));
    let named = log.display().to_string();
    let arguments = ["--ignored", "--exact", "--nocapture", test];
    let said = driver.rerun_with(&[("FAKE_DRIVER_LOG", &named)], &arguments);
    let _ = fs::remove_file(log);
    assert!(said.contains("1 passed; 0 failed"), "{test}: {said}");
    println!("{said}");
}

#[test]
fn memory_is_freed_behind_all_work() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    for test in [
        "memory_is_freed_behind_the_work_that_reads_it",
        "a_stream_that_was_destroyed_has_read_it",
        "the_context_of_the_thread_stays",
        "calls_restore_the_context_of_the_thread",
        "a_capture_of_the_frameworks_stream_is_left_whole",
        "a_slice_that_never_left_rust_is_freed_on_its_own_stream",
        "a_drop_costs_so_many_calls",
        "a_forked_child_frees_nothing",
    ] {
        passes(&driver, test);
    }
}

#[test]
fn an_older_driver_frees_behind_all_work_as_well() {
    let Some(driver) = FakeDriver::build_older_or_skip() else { return };
    passes(&driver, "memory_is_freed_behind_the_work_that_reads_it");
    passes(&driver, "a_stream_that_was_destroyed_has_read_it");
}
