//! Whether PyTorch captures a graph while a CUDA slice is dropped, of which another thread can see no more than what tensors
//! met.
//! Its table is called in `published`, the driver in `driver`.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use dlbridge::Device;
use dlbridge::sys::DLPackExchangeAPI;
use pyo3::intern;
use pyo3::types::PyType;

use super::driver::is_capturing;
use super::published::{find, stream_of};
use crate::interpreter::{Attributes, attached, imported_module, undisturbed};

/// PyTorch's table; null before a CUDA slice met it.
static PYTORCH: AtomicPtr<DLPackExchangeAPI> = AtomicPtr::new(ptr::null_mut());

/// Looks for PyTorch, until it is found: the stream on which it works may capture a graph when a slice is dropped.
/// A PyTorch without streams for the device, or without a table (before 2.10), has none.
pub(crate) fn find_pytorch(device: Device) {
    let Some(py) = attached().filter(|_| PYTORCH.load(Ordering::Relaxed).is_null()) else { return };
    undisturbed(py, || {
        let tensor = imported_module(intern!(py, "torch")).and_then(|torch| {
            torch.map(|torch| torch.attribute(intern!(py, "Tensor"))).transpose()
        });
        let Ok(Some(kind)) = tensor else { return };
        let Ok(Ok(Some(table))) = kind.cast_into::<PyType>().map(|kind| find(&kind)) else {
            return;
        };
        if stream_of(table, device).is_some() {
            PYTORCH.store(ptr::from_ref(table).cast_mut(), Ordering::Relaxed);
            dlbridge::cudarc_0_19::set_captures(pytorch_captures);
        }
    });
}

/// A stream of PyTorch that captured when a tensor met it, which another thread cannot see.
static CAPTURING: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Whether PyTorch captures a graph on this device: by its current stream, or by one that captured before. PyTorch
/// never destroys a stream of its own.
fn pytorch_captures(ordinal: usize) -> bool {
    let current = i32::try_from(ordinal).ok().and_then(|id| stream_of_pytorch(Device::cuda(id)));
    if current.is_some_and(is_capturing) {
        return true;
    }
    let before = CAPTURING.load(Ordering::Relaxed);
    if before.is_null() || is_capturing(before) {
        return !before.is_null();
    }
    let _ =
        CAPTURING.compare_exchange(before, ptr::null_mut(), Ordering::Relaxed, Ordering::Relaxed);
    false
}

/// Remembers a stream that captures, if it is PyTorch's.
pub(crate) fn remember(stream: *mut c_void, device: Device) {
    if stream_of_pytorch(device) == Some(stream) {
        CAPTURING.store(stream, Ordering::Relaxed);
    }
}

fn stream_of_pytorch(device: Device) -> Option<*mut c_void> {
    // SAFETY: the table of a type is static (F6).
    stream_of(unsafe { PYTORCH.load(Ordering::Relaxed).as_ref() }?, device)
}
