//! When the memory of an exported slice is freed: in the order of its own stream, and behind all work of the
//! device if the slice left Rust, because the consumers' streams may still read it.
#![allow(unsafe_code)]

use std::any::Any;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::result::ctx::{get_current, set_current};
use cudarc::driver::sys::{
    CUcontext, CUevent, CUresult, CUstream, CUstreamCaptureStatus, cuCtxPopCurrent_v2,
    cuCtxPushCurrent_v2, cuStreamIsCapturing,
};
use cudarc::driver::{CudaContext, CudaStream, DriverError};

use libloading::Library;

use crate::memory::unwind::catch;

#[cfg(windows)]
const DRIVER: &str = "nvcuda.dll";
#[cfg(not(windows))]
const DRIVER: &str = "libcuda.so.1";

/// What owns the memory of an export, with the stream on which it is freed.
pub(crate) struct OrderedOwner<O: Send + 'static> {
    parts: ManuallyDrop<(Arc<CudaStream>, O)>,
    /// Whether code that queues work on other streams may have had the memory.
    has_left: AtomicBool,
}

impl<O: Send + 'static> OrderedOwner<O> {
    pub(crate) fn new(stream: Arc<CudaStream>, owner: O) -> Self {
        // The first owner is made by the process that opened the driver.
        let _ =
            PROCESS.compare_exchange(0, std::process::id(), Ordering::Relaxed, Ordering::Relaxed);
        free_parked(None);
        Self { parts: ManuallyDrop::new((stream, owner)), has_left: AtomicBool::new(false) }
    }

    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.parts.0
    }

    pub(crate) fn owner(&self) -> &O {
        &self.parts.1
    }

    /// The owner, which is freed as it was before.
    pub(crate) fn into_owner(self) -> O {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once, because `this` is never dropped (R7).
        unsafe { ManuallyDrop::take(&mut this.parts) }.1
    }

    /// Declares that consumers may queue work on the memory which the owner's stream does not know.
    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }
}

impl<O: Send + 'static> Drop for OrderedOwner<O> {
    fn drop(&mut self) {
        // In a forked child, each call of the driver ends the process.
        if is_forked() {
            return;
        }
        // SAFETY: taken once, here (R7).
        let (stream, owner) = unsafe { ManuallyDrop::take(&mut self.parts) };
        if *self.has_left.get_mut() {
            return free_parked(Some((stream, Box::new(owner))));
        }
        match Current::new(stream.context()) {
            Ok(_current) => drop((owner, stream)),
            Err(_) => mem::forget((owner, stream)),
        }
    }
}

/// The process that opened the driver; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

fn is_forked() -> bool {
    PROCESS.load(Ordering::Relaxed) != std::process::id()
}

/// An owner that waits to be dropped, and its stream.
type Parked = (Arc<CudaStream>, Box<dyn Any + Send>);

/// Owners that were dropped while a stream captured, which calls of the driver would break.
static PARKED: Mutex<Vec<Parked>> = Mutex::new(Vec::new());

/// Drops an owner and those that were parked, behind all work of their devices.
fn free_parked(dropped: Option<Parked>) {
    if is_forked() {
        return mem::forget(dropped);
    }
    let parked = || PARKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut waiting = mem::take(&mut *parked());
    waiting.extend(dropped);
    if waiting.is_empty() {
        return;
    }
    // A panic of cudarc (a driver without a function) leaks what is left.
    let kept = catch(|| waiting.into_iter().filter_map(free_behind_all_work).collect::<Vec<_>>());
    if let Ok(mut kept) = kept {
        parked().append(&mut kept);
    }
}

/// Drops an owner; returns it while that would break a capture.
fn free_behind_all_work(parked: Parked) -> Option<Parked> {
    let Ok(current) = Current::new(parked.0.context()) else {
        // Without a context that can be current, the driver has ended.
        mem::forget(parked);
        return None;
    };
    let captures = CAPTURES.get().is_some_and(|captures| captures(current.0.ordinal()));
    if captures || is_capturing(parked.0.cu_stream()) || wait_for_all_work(&parked.0).is_err() {
        return Some(parked);
    }
    let (stream, owner) = parked;
    drop(owner);
    drop(stream);
    None
}

/// Makes a stream wait for all work that is queued in its context now. Before CUDA 12.5 no event has that
/// meaning, so the host waits. (`cuMemFree` does not wait for memory of a pool.)
fn wait_for_all_work(stream: &CudaStream) -> Result<(), DriverError> {
    let context = stream.context();
    let Some(record) = context_event() else { return context.synchronize() };
    let event = context.new_event(None)?;
    // SAFETY: a context and an event of it, alive until the call returns (F7).
    unsafe { record(context.cu_ctx(), event.cu_event()) }.result()?;
    stream.wait(&event)
}

/// `cuCtxRecordEvent`, which drivers before CUDA 12.5 lack. So it cannot be linked.
fn context_event() -> Option<ContextEvent> {
    static FOUND: OnceLock<Option<ContextEvent>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: the type of the function, as the driver's documentation gives it (F5).
        unsafe { library().ok()?.get::<ContextEvent>(b"cuCtxRecordEvent\0") }
            .ok()
            .map(|found| *found)
    })
}

/// The driver, which stays loaded, or why there is none.
pub(super) fn library() -> Result<&'static Library, String> {
    static LOADED: OnceLock<Result<Library, String>> = OnceLock::new();
    // SAFETY: NVIDIA's driver may be opened in any process (F7).
    let load = || unsafe { Library::new(DRIVER) }.map_err(|error| error.to_string());
    LOADED.get_or_init(load).as_ref().map_err(Clone::clone)
}

type ContextEvent = unsafe extern "C" fn(CUcontext, CUevent) -> CUresult;

/// Whether work in a stream's context is captured, so that recording the context breaks the capture.
fn is_capturing(stream: CUstream) -> bool {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: an owner's stream, which exists as long (F7); a place for the answer.
    let result = unsafe { cuStreamIsCapturing(stream, &raw mut status) };
    result != CUresult::CUDA_SUCCESS
        || status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
}

/// Whether a framework captures a graph on the device of this number, whose context is current.
type Captures = fn(usize) -> bool;

static CAPTURES: OnceLock<Captures> = OnceLock::new();

/// Tells how to find whether a framework captures. The first call counts.
pub fn set_captures(captures: Captures) {
    let _ = CAPTURES.set(captures);
}

/// Does `work`, which makes another context current on this thread, and restores the former one, if there was one.
pub(super) fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    let former = get_current();
    let result = work();
    if let Ok(Some(former)) = former {
        // SAFETY: it was current, and nothing here destroys it (F7).
        let _ = unsafe { set_current(former) };
    }
    result
}

/// A context that is current on this thread until it is dropped.
pub(super) struct Current(Arc<CudaContext>);

impl Current {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        // SAFETY: the context exists (F7).
        unsafe { cuCtxPushCurrent_v2(context.cu_ctx()) }.result()?;
        Ok(Self(Arc::clone(context)))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped: CUcontext = ptr::null_mut();
        // SAFETY: pushed by `new`; a place for it (F7). The former context is current again.
        let _ = unsafe { cuCtxPopCurrent_v2(&raw mut popped) };
    }
}
