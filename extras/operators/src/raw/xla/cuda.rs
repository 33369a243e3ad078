//! The stream and the device of a call of the handler for CUDA.

use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;

use dlbridge::Device;

use super::{Api, Extension, Frame};
use crate::argument::device_call::Copies;
use crate::argument::operand::Operand;
use crate::definition::Checked;
use crate::{DeviceStream, Failure};

#[repr(C)]
pub(super) struct Stream {
    size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    stream: *mut c_void,
}

#[repr(C)]
pub(super) struct Ordinal {
    size: usize,
    extension: *mut Extension,
    context: *mut c_void,
    ordinal: i32,
}

#[repr(C)]
pub(super) struct ErrorDestroy {
    size: usize,
    extension: *mut Extension,
    error: *mut c_void,
}

pub(super) type StreamGet = unsafe extern "C" fn(*mut Stream) -> *mut c_void;
pub(super) type OrdinalGet = unsafe extern "C" fn(*mut Ordinal) -> *mut c_void;
pub(super) type Destroy = unsafe extern "C" fn(*mut ErrorDestroy);

/// The stream on which XLA runs a call.
pub(super) fn stream<'f>(
    operator: &Checked,
    frame: &'f Frame,
) -> Result<DeviceStream<'f>, Failure> {
    operator.check_cuda("jax.device_put(x, jax.devices(\"cpu\")[0])")?;
    of(frame).map_err(|error| operator.named(error))
}

fn of(frame: &Frame) -> Result<DeviceStream<'_>, Failure> {
    let api = frame.api;
    // SAFETY: the frame's table, which begins with its size (F5).
    let size = unsafe { (*api).size };
    if size < offset_of!(Api, device_ordinal_get) + size_of::<OrdinalGet>() {
        return Err(Failure::new(
            "expected a JAX that tells an operator its device, found an older one",
        ));
    }
    let (extension, context) = (ptr::null_mut(), frame.context);
    let size = size_of::<Stream>();
    let mut stream = Stream { size, extension, context, stream: ptr::null_mut() };
    // SAFETY: the table has this function (F5).
    let get = unsafe { (*api).stream_get };
    // SAFETY: filled in above, with the frame's context (F2, F5).
    check(frame, unsafe { get(&mut stream) })?;
    let size = size_of::<Ordinal>();
    let mut ordinal = Ordinal { size, extension, context, ordinal: 0 };
    // SAFETY: the table has this function, by its size (F5).
    let get = unsafe { (*api).device_ordinal_get };
    // SAFETY: as above.
    check(frame, unsafe { get(&mut ordinal) })?;
    // SAFETY: XLA's stream of this device, which exists during the call (T14).
    Ok(unsafe { DeviceStream::new(stream.stream, Device::cuda(ordinal.ordinal)) })
}

/// Rejects an error of XLA, which is destroyed.
fn check(frame: &Frame, error: *mut c_void) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    let size = size_of::<ErrorDestroy>();
    let mut arguments = ErrorDestroy { size, extension: ptr::null_mut(), error };
    // SAFETY: the table has this function (F5).
    let destroy = unsafe { (*frame.api).error_destroy };
    // SAFETY: an error that XLA made, destroyed once (R7).
    unsafe { destroy(&mut arguments) };
    Err(Failure::new("expected a call on a CUDA stream, found one without"))
}

/// Rejects a result in place whose memory is not the argument's. XLA gives it that, because the call declares the alias.
pub(super) fn check_aliased(from: &Operand<'_>, to: &Operand<'_>) -> Result<(), Failure> {
    if from.data == to.data && (from.dtype, from.shape()) == (to.dtype, to.shape()) {
        return Ok(());
    }
    Err(Failure::new("expected the result in place to have the memory of its argument"))
}

/// XLA copies nothing for a handler: `in_jax.py` broadcasts before.
pub(super) struct NoCopies;

impl Copies for NoCopies {
    fn contiguous(
        &mut self,
        _: usize,
        operand: &Operand<'_>,
        _: bool,
    ) -> Result<*mut c_void, Failure> {
        let shape = operand.shape();
        Err(Failure::new(format!(
            "expected contiguous elements, found some that are broadcast to {shape:?}; use jnp.broadcast_to(x, shape)"
        )))
    }
}
