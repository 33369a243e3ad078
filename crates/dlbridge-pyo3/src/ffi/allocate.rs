//! New memory from a framework, through the allocator of its exchange table.
//! Choosing where memory comes from belongs to `framework`.
//! Invariant: the allocator's result is compared with the request before it is used.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use dlbridge::ffi::Unwinds;
use dlbridge::sys::{DLPackManagedTensorAllocator, DLTensor};
use dlbridge::{DType, Device, Tensor};
use pyo3::exceptions::{PyBufferError, PyException, PyMemoryError, PyNotImplementedError};
use pyo3::prelude::*;

use super::capsule;
use super::ended::stopped_if_ended;
use crate::{Error, Result};

/// Allocates memory of a framework.
pub(crate) struct Allocates(pub(super) DLPackManagedTensorAllocator);

impl Allocates {
    /// Device memory, which is not initialised. `None` if the allocator is a stub.
    pub(crate) fn tensor(
        self,
        py: Python<'_>,
        dtype: DType,
        shape: &[i64],
        device: Device,
    ) -> Result<Option<Tensor>> {
        let mut prototype = DLTensor {
            data: ptr::null_mut(),
            device: device.into(),
            ndim: shape.len().try_into().unwrap_or(i32::MAX),
            dtype: dtype.into(),
            shape: shape.as_ptr().cast_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let mut tensor = ptr::null_mut();
        let mut said = Said::default();
        let context = (&raw mut said).cast();
        // SAFETY: the prototype's shape has `ndim` extents; `hear` takes this context (F2).
        let status = stopped_if_ended(|| unsafe {
            self.0.unwinding()(&raw mut prototype, &raw mut tensor, context, Some(hear))
        });
        if status != 0 {
            return said.into_outcome(py, &format!("{dtype}{shape:?} on {device}"));
        }
        // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
        let tensor = unsafe { capsule::adopt(tensor) }?;
        if (tensor.dtype(), tensor.shape(), tensor.device()) != (dtype, shape, device) {
            let found = (tensor.dtype(), tensor.shape(), tensor.device());
            return Err(Error::buffer(format!(
                "allocator: expected {dtype}{shape:?} on {device}, found {}{:?} on {}",
                found.0, found.1, found.2
            )));
        }
        // SAFETY: an allocator's tensor is new, its caller's alone and writable (T10).
        Ok(Some(unsafe { dlbridge::ffi::into_exclusive_zeroed(tensor) }?))
    }
}

/// The error that an allocator reported.
#[derive(Default)]
struct Said {
    kind: String,
    message: String,
}

impl Said {
    /// The reason why there is no tensor; `Ok(None)` for an allocator that is a stub.
    ///
    /// Kinds are not reliable: PyTorch reports `MemoryError` for every failure, Paddle the name of
    /// the function, and CUDA's Python library raises an exception.
    #[cold]
    fn into_outcome(self, py: Python<'_>, tensor: &str) -> Result<Option<Tensor>> {
        let raised = PyErr::take(py);
        match &raised {
            Some(error) if error.is_instance_of::<PyNotImplementedError>(py) => return Ok(None),
            // An interrupt stays one.
            Some(error) if !error.is_instance_of::<PyException>(py) => {
                return Err(error.clone_ref(py).into());
            }
            _ => {}
        }
        let reason = match (&raised, self.message.lines().find(|line| !line.trim().is_empty())) {
            (_, Some(first)) => first.trim().to_owned(),
            (Some(error), None) => error.to_string(),
            (None, None) => "it gave no reason".to_owned(),
        };
        let message = format!("allocator: cannot allocate {tensor}: {reason}");
        // Words of PyTorch and of CUDA.
        let is_memory = self.kind == "MemoryError"
            && ["out of memory", "allocate memory"].iter().any(|words| message.contains(words));
        let error = if is_memory {
            PyMemoryError::new_err(message)
        } else {
            PyBufferError::new_err(message)
        };
        error.set_cause(py, raised);
        Err(error.into())
    }
}

/// Records an allocator's error. The thread may be attached or detached.
///
/// # Safety
///
/// `context` is an unshared [`Said`]; the texts are null or end with a NUL.
unsafe extern "C" fn hear(context: *mut c_void, kind: *const c_char, message: *const c_char) {
    // SAFETY: the caller's duty.
    let said = unsafe { &mut *context.cast::<Said>() };
    // SAFETY: the same.
    said.kind = unsafe { text(kind) };
    // SAFETY: the same.
    said.message = unsafe { text(message) };
}

/// # Safety
///
/// `text` is null or ends with a NUL.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the rest is the caller's duty.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
