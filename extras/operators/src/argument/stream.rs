//! The stream on which a framework runs an operator.
//! Invariant: the stream exists for the lifetime, on the device.
#![allow(unsafe_code)]

#[cfg(feature = "cudarc-0_19")]
use std::cell::OnceCell;
use std::ffi::c_void;
use std::marker::PhantomData;
#[cfg(feature = "cudarc-0_19")]
use std::sync::{Arc, OnceLock};

#[cfg(feature = "cudarc-0_19")]
use cudarc::driver::{CudaContext, CudaStream};
use dlbridge::Device;

/// The stream of the framework, on which an operator's CUDA function queues its work.
///
/// The framework has queued the work that writes the arguments there before, and queues there what reads the results.
/// So the function need not wait for either, and returns while its own work is still queued.
#[derive(Debug)]
pub struct DeviceStream<'a> {
    handle: *mut c_void,
    device: Device,
    #[cfg(feature = "cudarc-0_19")]
    cudarc: OnceCell<Arc<CudaStream>>,
    lifetime: PhantomData<&'a c_void>,
}

impl DeviceStream<'_> {
    /// # Safety
    ///
    /// The stream of this handle exists for `'a`, on this device; null is the default stream.
    pub(crate) unsafe fn new(handle: *mut c_void, device: Device) -> Self {
        Self {
            handle,
            device,
            #[cfg(feature = "cudarc-0_19")]
            cudarc: OnceCell::new(),
            lifetime: PhantomData,
        }
    }

    /// The `CUstream`, which is a `cudaStream_t` as well. Null is the default stream. It is valid during the call.
    #[must_use]
    pub fn handle(&self) -> *mut c_void {
        self.handle
    }

    /// The device of the stream and of all tensors of the call.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// The stream for kernels and copies of cudarc, in the context that PyTorch and JAX use.
    ///
    /// # Errors
    ///
    /// If the driver cannot be loaded, or does not know the device.
    #[cfg(feature = "cudarc-0_19")]
    pub fn cudarc(&self) -> Result<&CudaStream, dlbridge::Error> {
        if let Some(stream) = self.cudarc.get() {
            return Ok(stream);
        }
        let context = context(self.device)?;
        // SAFETY: a stream of this device's primary context, which exists as long as `self` (T14). No other code
        // gets the `Arc`, so the wrapper ends with `self`, and it does not destroy the stream.
        let stream = unsafe { context.wrap_borrowed_stream(self.handle.cast()) };
        Ok(self.cudarc.get_or_init(|| stream))
    }
}

/// The context of a device, which is kept: the last one that is dropped would unload the kernels.
#[cfg(feature = "cudarc-0_19")]
fn context(device: Device) -> Result<Arc<CudaContext>, dlbridge::Error> {
    static CONTEXTS: [OnceLock<Arc<CudaContext>>; 64] = [const { OnceLock::new() }; 64];
    let place = usize::try_from(device.id).ok().and_then(|id| CONTEXTS.get(id));
    if let Some(context) = place.and_then(OnceLock::get) {
        return Ok(Arc::clone(context));
    }
    let context = dlbridge::cudarc_0_19::context(device)?;
    Ok(Arc::clone(place.map_or(&context, |place| place.get_or_init(|| Arc::clone(&context)))))
}
