//! The exchange tables of other classes, and of ours in other modules. Only this file calls a table.
//! What is imported belongs to `import`, choosing where memory comes from to `framework`.
//! Invariants: a table is called only with objects of types that go by it. An allocator's result is compared
//! with the request before it is used.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use dlbridge::ffi::{Unwinds, stopping};
use dlbridge::protocol::call::mentions;
use dlbridge::protocol::table::{ATTRIBUTE, CAPSULE, usable};
use dlbridge::sys::{DLDeviceType, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor};
use dlbridge::{DType, Device, Tensor};
use pyo3::Borrowed;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyNotImplementedError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};

use super::capsule::{adopt, release_rejected};
use super::class::inherited;
use super::memory::exclusive_on_device;
use super::stream::Stream;
use super::table::is_ours;
use crate::error::{error_of, is_refusal};
use crate::{Error, Result};

/// The table in a type's attribute, if its version is supported, and it makes tensors of objects, as DLPack requires.
pub(crate) fn find(kind: &Bound<'_, PyType>) -> PyResult<Option<&'static DLPackExchangeAPI>> {
    Ok(inherited(kind, ATTRIBUTE)?.and_then(|capsule| table_in(&capsule)))
}

fn table_in(capsule: &Bound<'_, PyAny>) -> Option<&'static DLPackExchangeAPI> {
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let header = capsule.pointer_checked(Some(CAPSULE)).ok()?;
    // SAFETY: a table that a type publishes is static, and starts with its header in every version
    // (DLPack 1.2, DLPackExchangeAPIHeader; F5, F6).
    let header = unsafe { header.cast::<DLPackExchangeAPIHeader>().as_ref() };
    // SAFETY: the same of each older table; null ends the chain (F5, F6).
    let found = usable(Some(header), |newer| unsafe { newer.prev_api.as_ref() })?;
    // SAFETY: a table of this major version has this layout (F5).
    let table = unsafe { &*ptr::from_ref(found).cast::<DLPackExchangeAPI>() };
    table.managed_tensor_from_py_object_no_sync.map(|_| table)
}

/// An object, and the exchange table that its type goes by.
#[derive(Clone, Copy)]
pub(crate) struct Published<'a, 'py> {
    object: Borrowed<'a, 'py, PyAny>,
    table: &'static DLPackExchangeAPI,
}

impl<'a, 'py> Published<'a, 'py> {
    /// # Safety
    ///
    /// The object is of the type that published the table, or of one derived from it that has the
    /// same methods.
    #[inline(always)]
    pub(crate) unsafe fn new(
        object: Borrowed<'a, 'py, PyAny>,
        table: &'static DLPackExchangeAPI,
    ) -> Self {
        Self { object, table }
    }

    pub(crate) fn object(self) -> Borrowed<'a, 'py, PyAny> {
        self.object
    }

    #[inline(always)]
    pub(crate) fn table(self) -> &'static DLPackExchangeAPI {
        self.table
    }

    /// Whether the table is one of this library, which keeps read-only memory read-only and allocates
    /// host memory.
    pub(crate) fn is_ours(self) -> bool {
        is_ours(self.table)
    }

    /// A tensor over the object's memory; `None` if the table failed.
    #[inline(always)]
    pub(crate) fn tensor(self) -> Result<Option<Tensor>> {
        let Some(function) = self.table.managed_tensor_from_py_object_no_sync else {
            return Ok(None);
        };
        let mut tensor = ptr::null_mut();
        // SAFETY: the object goes by the table, and the interpreter is attached (F1, F5).
        let status = stopping(|| unsafe {
            function.unwinding()(self.object.as_ptr().cast(), &raw mut tensor)
        });
        if status != 0 {
            return Ok(None);
        }
        // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
        unsafe { adopt(self.object.py(), tensor) }.map(Some)
    }

    /// Whether the table makes arrays of tensors.
    #[inline(always)]
    pub(crate) fn makes_arrays(self) -> bool {
        self.table.managed_tensor_to_py_object_no_sync.is_some()
    }

    /// An array of a tensor. A tensor that the table rejects is released.
    pub(crate) fn array(self, tensor: Tensor) -> Result<Bound<'py, PyAny>> {
        let Some(function) = self.table.managed_tensor_to_py_object_no_sync else {
            let message =
                "expected an exchange table that makes arrays, found one without the function";
            return Err(Error::buffer(message));
        };
        let (py, tensor) = (self.object.py(), tensor.into_raw());
        let mut object: *mut c_void = ptr::null_mut();
        // SAFETY: the interpreter is attached, and the tensor was exported just now (F1, R3).
        let status = stopping(|| unsafe { function.unwinding()(tensor, &raw mut object) });
        if status != 0 {
            let error = failure(py);
            // SAFETY: a table that fails leaves the tensor with its caller (`dlbridge-sys`; T1).
            unsafe { release_rejected(py, tensor) };
            return Err(error.into());
        }
        // SAFETY: a call that succeeds gives a new reference; null is asked for (F3).
        let object = unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) };
        object.ok_or_else(|| failure(py).into())
    }

    /// Device memory, which is not initialised. `None` if the table has no allocator, or a stub.
    pub(crate) fn allocate(
        self,
        dtype: DType,
        shape: &[i64],
        device: Device,
    ) -> Result<Option<Tensor>> {
        let Some(allocator) = self.table.managed_tensor_allocator else { return Ok(None) };
        let py = self.object.py();
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
        let status = stopping(|| unsafe {
            allocator.unwinding()(&raw mut prototype, &raw mut tensor, context, Some(hear))
        });
        if status != 0 {
            return said.into_outcome(py, &format!("{dtype}{shape:?} on {device}"));
        }
        // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
        let tensor = unsafe { adopt(py, tensor) }?;
        if (tensor.dtype(), tensor.shape(), tensor.device()) != (dtype, shape, device) {
            let found = (tensor.dtype(), tensor.shape(), tensor.device());
            return Err(Error::buffer(format!(
                "allocator: expected {dtype}{shape:?} on {device}, found {}{:?} on {}",
                found.0, found.1, found.2
            )));
        }
        exclusive_on_device(tensor).map(Some)
    }

    /// The current stream of the table's framework; `None` if the table failed.
    #[cold]
    pub(crate) fn current_stream(self, device: Device) -> Option<Stream> {
        if self.table.current_work_stream.is_none() {
            return Some(Stream::DEFAULT);
        }
        // SAFETY: the producer's own current stream (SAFETY.md, T11).
        stream_of(self.table, device).map(|handle| unsafe { Stream::from_handle(handle) })
    }
}

/// The current stream of a table for a device; `None` if the table has none, or failed. PyTorch's needs no interpreter.
pub(super) fn stream_of(table: &DLPackExchangeAPI, device: Device) -> Option<*mut c_void> {
    let current_work_stream = table.current_work_stream?;
    // Some frameworks write no handle where they mean the default stream.
    let (mut handle, kind) = (ptr::null_mut(), DLDeviceType(device.kind.0));
    // SAFETY: a callback of a type's own table, and a place for the answer (F5).
    let status =
        stopping(|| unsafe { current_work_stream.unwinding()(kind, device.id, &raw mut handle) });
    (status == 0).then_some(handle)
}

/// The exception that the table raised; some tables fail without one.
#[cold]
pub(crate) fn failure(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| {
        let message = "expected a tensor, but its exchange table failed without a reason";
        error_of::<PyBufferError>(message)
    })
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
            Some(error) if !is_refusal(py, error) => {
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
            && ["out of memory", "allocate memory"].iter().any(|words| mentions(&message, words));
        let error = if is_memory {
            error_of::<PyMemoryError>(message)
        } else {
            error_of::<PyBufferError>(message)
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
