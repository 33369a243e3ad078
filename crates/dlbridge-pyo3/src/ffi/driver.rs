//! The functions of the CUDA driver that order one stream after another.
//! Deciding what waits for what belongs to `ready`.
//! Invariant: the library is loaded at first use, never linked, and stays loaded.
//!
//! Not yet tested on a GPU: the tests use a fake driver, which records the calls.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use dlbridge::Device;
use libloading::Library;

use crate::{Error, Result};

/// A `CUstream`: an address, or one of two numbers.
pub(crate) type StreamHandle = *mut c_void;
/// A `CUevent`.
pub(crate) type EventHandle = *mut c_void;
/// A `CUcontext`.
pub(crate) type Context = *mut c_void;

/// `CU_EVENT_DISABLE_TIMING`: an event is only used to wait for it.
const DISABLE_TIMING: c_uint = 2;
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
    pointer = b"cuPointerGetAttribute" (*mut c_void, c_int, u64);
}

/// The loaded driver.
pub(crate) struct Driver {
    call: Functions,
    /// Never closed: other libraries of this process use the same driver.
    _library: Library,
}

impl Driver {
    /// The driver, loaded on the first call.
    ///
    /// # Errors
    ///
    /// A `BufferError` with the reason why the driver is not available.
    pub(crate) fn get() -> Result<&'static Self> {
        static DRIVER: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
        let driver = DRIVER.get_or_init(|| Self::open().map_err(|error| error.to_string()));
        driver.as_ref().map_err(|why| {
            Error::buffer(format!(
                "stream: expected a CUDA driver to order work with, found none ({why})"
            ))
        })
    }

    fn open() -> std::result::Result<Self, libloading::Error> {
        // SAFETY: NVIDIA's driver may be opened in any process (F7).
        let library = unsafe { Library::new(NAME) }?;
        let call = Functions::find(&library)?;
        // What it says, the next call says, too.
        // SAFETY: may be called any number of times (F7).
        let _ = unsafe { (call.init)(0) };
        Ok(Self { call, _library: library })
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

    /// The primary context of a device. It is never released: releasing the last reference would
    /// destroy it while other libraries use it.
    pub(crate) fn primary_context(&self, device: Device) -> Result<Context> {
        let (mut ordinal, mut context) = (0, ptr::null_mut());
        // SAFETY: a place for the answer (F7).
        let status = unsafe { (self.call.device)(&raw mut ordinal, device.id) };
        self.check("cuDeviceGet", status)?;
        // SAFETY: the same.
        let status = unsafe { (self.call.retain)(&raw mut context, ordinal) };
        self.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(context)
    }

    /// The context that a stream was made in.
    pub(crate) fn context_of(&self, stream: StreamHandle) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: a stream that exists (the duty of `Stream`), and a place for the answer.
        let status = unsafe { (self.call.context_of)(stream, &raw mut context) };
        self.check("cuStreamGetCtx", status)?;
        Ok(context)
    }

    /// Does `work` with a context current on this thread, then restores the former one.
    pub(crate) fn within<T>(
        &self,
        context: Context,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
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
    pub(crate) fn record(&self, stream: StreamHandle) -> Result<EventHandle> {
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
    pub(crate) fn wait(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        // SAFETY: both exist (the duties of `Stream` and of `Event`).
        let status = unsafe { (self.call.wait)(stream, event, 0) };
        self.check("cuStreamWaitEvent", status)
    }

    /// The host waits for an event.
    pub(crate) fn wait_on_host(&self, event: EventHandle) -> Result<()> {
        // SAFETY: it exists (F7).
        let status = unsafe { (self.call.synchronize)(event) };
        self.check("cuEventSynchronize", status)
    }

    /// Destroys an event. Streams that wait for it still do.
    pub(crate) fn destroy(&self, event: EventHandle) {
        // SAFETY: it exists, and is not used again. An error cannot be answered for (F7).
        let _ = unsafe { (self.call.destroy)(event) };
    }
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
