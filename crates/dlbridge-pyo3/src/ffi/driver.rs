//! Events, and the functions of the CUDA driver that order one stream after another.
//! Deciding what waits for what belongs to `stream`.
//! Invariant: the library is loaded at first use, never linked, and stays loaded.

pub(crate) mod memory;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::{Device, DeviceKind};
use libloading::Library;

use crate::{Error, Result};

/// A `CUstream`: an address, or one of two numbers.
type StreamHandle = *mut c_void;
/// A `CUevent`.
type EventHandle = *mut c_void;
/// A `CUcontext`.
type Context = *mut c_void;

/// `CU_EVENT_DISABLE_TIMING`: an event is only used to wait for it.
const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: no call of the thread breaks a capture, unless it is in the capture.
const RELAXED: c_int = 2;
/// `CUDA_ERROR_INVALID_CONTEXT`: the thread has no current context.
const INVALID_CONTEXT: c_int = 201;
/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: c_int = 9;

#[cfg(windows)]
const NAME: &str = "nvcuda.dll";
#[cfg(not(windows))]
const NAME: &str = "libcuda.so.1";

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The driver's functions. Each returns 0 on success.
        struct Functions {
            $($(#[$doc])* $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// Looks all of them up.
            fn find(library: &Library) -> std::result::Result<Self, libloading::Error> {
                $(
                    // SAFETY: the function's type, as the driver's documentation gives it (F5).
                    let $name = *unsafe { library.get($symbol) }?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

functions! {
    init = b"cuInit" (c_uint);
    error_name = b"cuGetErrorName" (c_int, *mut *const c_char);
    device = b"cuDeviceGet" (*mut c_int, c_int);
    retain = b"cuDevicePrimaryCtxRetain" (*mut Context, c_int);
    push = b"cuCtxPushCurrent_v2" (Context);
    pop = b"cuCtxPopCurrent_v2" (*mut Context);
    context_of = b"cuStreamGetCtx" (StreamHandle, *mut Context);
    create = b"cuEventCreate" (*mut EventHandle, c_uint);
    record = b"cuEventRecord" (EventHandle, StreamHandle);
    wait = b"cuStreamWaitEvent" (StreamHandle, EventHandle, c_uint);
    synchronize = b"cuEventSynchronize" (EventHandle);
    destroy = b"cuEventDestroy_v2" (EventHandle);
    is_capturing = b"cuStreamIsCapturing" (StreamHandle, *mut c_int);
    exchange_mode = b"cuThreadExchangeStreamCaptureMode" (*mut c_int);
    pointer = b"cuPointerGetAttribute" (*mut c_void, c_int, u64);
    finish = b"cuStreamSynchronize" (StreamHandle);
    allocate = b"cuMemAlloc_v2" (*mut u64, usize);
    free = b"cuMemFree_v2" (u64);
    to_host = b"cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, StreamHandle);
    to_device = b"cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, StreamHandle);
    on_device = b"cuMemcpyDtoDAsync_v2" (u64, u64, usize, StreamHandle);
}

/// The loaded driver.
struct Driver {
    call: Functions,
    /// The process that opened it. A child that was forked must not call it.
    process: u32,
    /// Never closed: other libraries of this process use the same driver.
    _library: Library,
}

impl Driver {
    /// The driver, loaded on the first call.
    ///
    /// # Errors
    ///
    /// A `BufferError` with the reason why the driver is not available.
    fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
        let driver = DRIVER.get_or_init(|| Self::open().map_err(|error| error.to_string()));
        let driver = driver.as_ref().map_err(|why| {
            Error::buffer(format!(
                "stream: expected a CUDA driver to order work with, found none ({why})"
            ))
        })?;
        if driver.process != std::process::id() {
            return Err(Error::buffer(
                "stream: expected the process that opened the CUDA driver, found a forked child; \
                 start processes that use CUDA by multiprocessing's \"spawn\"",
            ));
        }
        Ok(driver)
    }

    fn open() -> std::result::Result<Self, libloading::Error> {
        // SAFETY: NVIDIA's driver may be opened in any process (F7).
        let library = unsafe { Library::new(NAME) }?;
        let call = Functions::find(&library)?;
        // What it says, the next call says, too.
        // SAFETY: may be called any number of times (F7).
        let _ = unsafe { (call.init)(0) };
        Ok(Self { call, process: std::process::id(), _library: library })
    }

    /// # Errors
    ///
    /// A `BufferError` that names the function and the driver's error.
    fn check(&self, function: &str, status: c_int) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut name = ptr::null();
        // SAFETY: a place for a static string; it stays null for a number without a name (F7).
        let known = unsafe { (self.call.error_name)(status, &raw mut name) } == 0;
        let name = if known && !name.is_null() {
            // SAFETY: a static, null-terminated string (F7).
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            format!("error {status}")
        };
        Err(Error::buffer(format!("stream: {function} failed with {name}")))
    }

    /// The primary context of a device. It is retained once and never released: releasing the last
    /// reference would destroy it while other libraries use it.
    fn primary_context(&self, device: Device) -> Result<Context> {
        static RETAINED: [AtomicPtr<c_void>; 64] = [const { AtomicPtr::new(ptr::null_mut()) }; 64];
        let Some(place) = usize::try_from(device.id).ok().and_then(|id| RETAINED.get(id)) else {
            return self.retain_primary_context(device);
        };
        let mut context = place.load(Ordering::Relaxed);
        if context.is_null() {
            context = self.retain_primary_context(device)?;
            place.store(context, Ordering::Relaxed);
        }
        Ok(context)
    }

    fn retain_primary_context(&self, device: Device) -> Result<Context> {
        let (mut ordinal, mut context) = (0, ptr::null_mut());
        // SAFETY: a place for the answer (F7).
        let status = unsafe { (self.call.device)(&raw mut ordinal, device.id) };
        self.check("cuDeviceGet", status)?;
        // SAFETY: the same.
        let status = unsafe { (self.call.retain)(&raw mut context, ordinal) };
        self.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(context)
    }

    /// The context that a stream was made in. A thread without a current context cannot ask, so the
    /// primary one of the device is current for a second call.
    fn context_of(&self, stream: StreamHandle, device: Device) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: a stream that exists (the duty of `Stream`), and a place for the answer.
        let mut ask = || unsafe { (self.call.context_of)(stream, &raw mut context) };
        let mut status = ask();
        if status == INVALID_CONTEXT {
            status = self.within(self.primary_context(device)?, || Ok(ask()))?;
        }
        self.check("cuStreamGetCtx", status)?;
        Ok(context)
    }

    /// Does `work` with a context current on this thread, then restores the former one.
    fn within<T>(&self, context: Context, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // SAFETY: a context that exists (F7).
        let status = unsafe { (self.call.push)(context) };
        self.check("cuCtxPushCurrent", status)?;
        let outcome = work();
        let mut popped = ptr::null_mut();
        // What has been done is done, whatever the driver says now.
        // SAFETY: what was pushed above, and a place for it (F7).
        let _ = unsafe { (self.call.pop)(&raw mut popped) };
        outcome
    }

    /// Records an event after all work that is queued on `stream` now.
    fn record(&self, stream: StreamHandle) -> Result<EventHandle> {
        let mut event = ptr::null_mut();
        // SAFETY: a place for the answer; the context is current (F7).
        let status = unsafe { (self.call.create)(&raw mut event, DISABLE_TIMING) };
        self.check("cuEventCreate", status)?;
        // SAFETY: made above, in the stream's context (F7).
        let status = unsafe { (self.call.record)(event, stream) };
        self.check("cuEventRecord", status).inspect_err(|_| self.destroy(event))?;
        Ok(event)
    }

    /// Makes work that is queued on `stream` later wait for `event`. The host does not wait.
    fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: both exist (the duties of `Stream` and of `Event`).
        let status = unsafe { (self.call.wait)(stream, event, 0) };
        self.check("cuStreamWaitEvent", status)
    }

    /// Does `work`, which breaks no capture: a thread whose mode is relaxed may wait, allocate and free.
    fn relaxed<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut mode = RELAXED;
        // SAFETY: the mode of this thread, and a place for the former one (F7).
        let status = unsafe { (self.call.exchange_mode)(&raw mut mode) };
        self.check("cuThreadExchangeStreamCaptureMode", status)?;
        let outcome = work();
        // SAFETY: the former mode (F7).
        let _ = unsafe { (self.call.exchange_mode)(&raw mut mode) };
        outcome
    }

    /// The host waits for an event.
    fn wait_on_host(&self, event: EventHandle) -> Result<()> {
        self.relaxed(|| {
            // SAFETY: it exists (F7).
            let status = unsafe { (self.call.synchronize)(event) };
            self.check("cuEventSynchronize", status)
        })
    }

    /// Whether a stream captures a graph. The legacy default stream never does.
    fn is_capturing(&self, stream: StreamHandle) -> bool {
        if stream.addr() == 1 {
            return false;
        }
        let mut captures = 0;
        // SAFETY: a stream that exists (the duty of `Stream`), and a place for the answer (F7).
        let status = unsafe { (self.call.is_capturing)(stream, &raw mut captures) };
        status == 0 && captures != 0
    }

    /// Destroys an event. Streams that wait for it still do.
    fn destroy(&self, event: EventHandle) {
        // SAFETY: it exists, and is not used again. An error cannot be answered for (F7).
        let _ = unsafe { (self.call.destroy)(event) };
    }
}

/// Whether a stream captures a graph, on a thread with a current context.
#[cfg(feature = "cudarc-0_19")]
pub(super) fn is_capturing(stream: *mut c_void) -> bool {
    Driver::get().is_ok_and(|driver| driver.is_capturing(stream))
}

/// Whether there is a driver.
pub(crate) fn has_driver() -> bool {
    Driver::get().is_ok()
}

/// Whether no work can be queued on a CUDA device, because there is no driver.
pub(crate) fn has_no_work() -> bool {
    !has_driver()
}

/// The device that an address in device memory is on.
///
/// # Errors
///
/// A `BufferError` if there is no driver, or the driver does not know the address.
pub(crate) fn device_of_pointer(address: usize) -> Result<Device> {
    let driver = Driver::get()?;
    let mut ordinal: c_int = 0;
    let place = (&raw mut ordinal).cast();
    // SAFETY: a place for this attribute's type; any address may be asked about (F7).
    let status = unsafe { (driver.call.pointer)(place, DEVICE_ORDINAL, address as u64) };
    driver.check("cuPointerGetAttribute", status)?;
    Ok(Device::cuda(ordinal))
}

/// A handle as the driver takes it: the numbers 1 and 2 are its own for the default streams.
fn handle(number: i64) -> StreamHandle {
    ptr::with_exposed_provenance_mut(number as usize)
}

/// The context of a stream; that of a default stream is the device's primary one.
fn context(driver: &Driver, number: i64, device: Device) -> Result<Context> {
    match number {
        1 | 2 => driver.primary_context(device),
        _ => driver.context_of(handle(number), device),
    }
}

/// An event of the driver, and the context that it was made in.
#[derive(Debug)]
pub struct Event {
    event: EventHandle,
    context: Context,
}

// SAFETY: the driver's functions may be called with an event on any thread (F7, R9).
unsafe impl Send for Event {}
// SAFETY: the same.
unsafe impl Sync for Event {}

impl Event {
    /// Records an event on the stream of this number. `None` for a stream that captures a graph: outside the
    /// capture, no event of it has a meaning.
    pub(crate) fn record(number: i64, device: Device) -> Result<Option<Self>> {
        let driver = Driver::get()?;
        let context = context(driver, number, device)?;
        let event = driver.within(context, || {
            let stream = handle(number);
            if driver.is_capturing(stream) { Ok(None) } else { driver.record(stream).map(Some) }
        })?;
        Ok(event.map(|event| Self { event, context }))
    }

    /// Makes the stream of this number wait. For one that captures a graph, which `captures` is told, the host waits
    /// instead, because a wait for work outside the capture breaks it.
    pub(crate) fn before(
        &self,
        number: i64,
        device: Device,
        captures: impl FnOnce(*mut c_void),
    ) -> Result<()> {
        let driver = Driver::get()?;
        let context = context(driver, number, device)?;
        driver.within(context, || {
            let stream = handle(number);
            if driver.is_capturing(stream) {
                captures(stream);
                driver.wait_on_host(self.event)
            } else {
                driver.wait(stream, self.event)
            }
        })
    }

    pub(crate) fn before_host(&self) -> Result<()> {
        let driver = Driver::get()?;
        driver.within(self.context, || driver.wait_on_host(self.event))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Ok(driver) = Driver::get() else { return };
        // An error here cannot be answered for; at exit, the driver may have gone first.
        let _ = driver.within(self.context, || {
            driver.destroy(self.event);
            Ok(())
        });
    }
}

/// The primary context of a CUDA device, which frameworks use: current on this thread until this is dropped; then the
/// former one is. The driver launches kernels in the current context.
///
/// ```
/// use dlbridge::Device;
/// use dlbridge_pyo3::CurrentContext;
///
/// match CurrentContext::of(Device::cuda(0)) {
///     Ok(_current) => println!("kernels can be launched here"),
///     Err(error) => println!("{error}"), // there is no driver, or no such device
/// }
/// assert!(CurrentContext::of(Device::CPU).is_err());
/// ```
#[derive(Debug)]
#[must_use = "the context is current while this lives"]
pub struct CurrentContext {
    pop: unsafe extern "C" fn(*mut Context) -> c_int,
    /// On the thread where it is current.
    _thread: PhantomData<*mut ()>,
}

impl CurrentContext {
    /// Makes the context of a device current.
    ///
    /// # Errors
    ///
    /// A `BufferError` for other devices than CUDA's, without a driver, or if it refuses.
    pub fn of(device: Device) -> Result<Self> {
        if device.kind != DeviceKind::CUDA {
            return Err(Error::buffer(format!(
                "expected a device such as {}, found {device}",
                Device::cuda(0)
            )));
        }
        let driver = Driver::get()?;
        let context = driver.primary_context(device)?;
        // SAFETY: a context that exists, because it is never released (F7).
        let status = unsafe { (driver.call.push)(context) };
        driver.check("cuCtxPushCurrent", status)?;
        Ok(Self { pop: driver.call.pop, _thread: PhantomData })
    }
}

impl Drop for CurrentContext {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: pushed on this thread, which this cannot leave, and a place for it (F7).
        let _ = unsafe { (self.pop)(&raw mut popped) };
    }
}
