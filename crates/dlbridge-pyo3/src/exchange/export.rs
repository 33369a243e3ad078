//! The exchange table that `dlbridge.Tensor` publishes.
//! Answering `__dlpack__` belongs to `negotiate`.
//! Invariant: no panic leaves a callback; a failure has set an exception, and owns nothing.

use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use dlbridge::sys::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLPackSetError, DLPackVersion, DLTensor,
};
use dlbridge::{DType, Device, DeviceKind, Tensor, TypeCode};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

use super::table::CAPSULE_NAME;
use crate::{Result, TensorObject};

/// A table that may be shared between threads: its fields never change.
struct Table(DLPackExchangeAPI);

// SAFETY: immutable, and its functions may be called from any attached thread.
unsafe impl Sync for Table {}

static TABLE: Table = Table(DLPackExchangeAPI {
    header: DLPackExchangeAPIHeader { version: DLPackVersion::CURRENT, prev_api: ptr::null_mut() },
    managed_tensor_allocator: Some(allocate),
    managed_tensor_from_py_object_no_sync: Some(from_object),
    managed_tensor_to_py_object_no_sync: Some(to_object),
    dltensor_from_py_object_no_sync: Some(borrow),
    current_work_stream: Some(current_work_stream),
});

/// The capsule for the type's attribute.
pub(crate) fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = (&raw const TABLE.0).cast_mut().cast::<c_void>();
    // SAFETY: a static table and a static name; nothing is to be released.
    let capsule = unsafe { ffi::PyCapsule_New(table, CAPSULE_NAME.as_ptr(), None) };
    // SAFETY: a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// Runs a callback: 0 if it went well, otherwise -1 with an exception set.
fn guarded(callback: impl FnOnce(Python<'_>) -> Result<()>) -> c_int {
    // SAFETY: the table's functions are called with the interpreter attached (DLPack 1.2).
    let py = unsafe { Python::assume_attached() };
    let outcome = catch_unwind(AssertUnwindSafe(|| callback(py)));
    let error = match outcome {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => PyErr::from(error),
        Err(payload) => {
            std::mem::forget(payload);
            PyRuntimeError::new_err("dlbridge panicked; please report it")
        }
    };
    error.restore(py);
    -1
}

/// The tensor of a Python object, which must be a `dlbridge.Tensor` of this extension.
///
/// # Safety
///
/// `object` is a Python object, borrowed for `'a`.
unsafe fn tensor_of<'a>(
    py: Python<'a>,
    object: *mut c_void,
) -> Result<Borrowed<'a, 'a, TensorObject>> {
    // SAFETY: the caller's duty.
    let object = unsafe { Borrowed::from_ptr(py, object.cast()) };
    let object = object.cast::<TensorObject>().map_err(PyErr::from)?;
    object.get().settle()?;
    Ok(object)
}

unsafe extern "C" fn from_object(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    guarded(|py| {
        // SAFETY: the caller gives a Python object.
        let tensor = unsafe { tensor_of(py, object) }?.get().share();
        // SAFETY: the caller gives a place to write to.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    })
}

/// On failure, the tensor stays the caller's.
unsafe extern "C" fn to_object(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    guarded(|py| {
        // SAFETY: the caller gives a tensor away, if it passes the gate.
        let tensor = unsafe { Tensor::try_from_raw(tensor) }?;
        let object = Bound::new(py, TensorObject::new(tensor))?;
        // SAFETY: the caller gives a place to write to.
        unsafe { out.write(object.into_ptr().cast()) };
        Ok(())
    })
}

/// The descriptor is the object's own: valid as long as the object is.
unsafe extern "C" fn borrow(object: *mut c_void, out: *mut DLTensor) -> c_int {
    guarded(|py| {
        // SAFETY: the caller gives a Python object.
        let object = unsafe { tensor_of(py, object) }?;
        // SAFETY: the caller gives a place to write to.
        unsafe { out.write(object.get().tensor().as_raw()) };
        Ok(())
    })
}

/// Work on host memory is in order as it is. On a device it is the default stream, which waits for
/// what a tensor's memory is made by before the tensor is given (`tensor_of`).
unsafe extern "C" fn current_work_stream(_: DLDeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the caller gives a place to write to.
    unsafe { out.write(ptr::null_mut()) };
    0
}

/// Zeroed host memory of the prototype's shape and type. Reports through `set_error`, since the
/// interpreter may be detached.
unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<DLPackSetError>,
) -> c_int {
    // SAFETY: the caller gives a prototype, whose data is not looked at.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { zeros_like(prototype) }));
    let error = match outcome {
        Ok(Ok(tensor)) => {
            // SAFETY: the caller gives a place to write to.
            unsafe { out.write(tensor.into_raw()) };
            return 0;
        }
        Ok(Err(error)) => error.to_string(),
        Err(payload) => {
            std::mem::forget(payload);
            "dlbridge panicked; please report it".to_owned()
        }
    };
    if let (Some(set_error), Ok(message)) = (set_error, CString::new(error)) {
        let kind: *const c_char = c"BufferError".as_ptr();
        // SAFETY: strings that outlive the call, and the caller's own context.
        unsafe { set_error(context, kind, message.as_ptr()) };
    }
    -1
}

/// # Safety
///
/// `prototype` is null or a descriptor whose shape, if not null, has `ndim` numbers.
unsafe fn zeros_like(prototype: *mut DLTensor) -> std::result::Result<Tensor, dlbridge::Error> {
    // SAFETY: the caller's duty.
    let prototype = unsafe { prototype.as_ref() }.ok_or(dlbridge::Error::NullTensor)?;
    let DLTensor { dtype, device, ndim, shape, .. } = *prototype;
    let device = Device::new(DeviceKind(device.device_type.0), device.device_id);
    if device != Device::CPU {
        return Err(dlbridge::Error::NotHostAccessible { device });
    }
    let rank = usize::try_from(ndim).ok().filter(|&rank| rank <= dlbridge::MAX_RANK);
    let rank = rank.ok_or(dlbridge::Error::RankOutOfRange { ndim })?;
    let shape = match (rank, shape.is_null()) {
        (0, _) => &[],
        (_, true) => return Err(dlbridge::Error::NullShape { ndim }),
        // SAFETY: not null, and the rest is the caller's duty.
        (_, false) => unsafe { slice::from_raw_parts(shape, rank) },
    };
    let dtype = DType { code: TypeCode(dtype.code.0), bits: dtype.bits, lanes: dtype.lanes };
    Tensor::zeros(dtype, shape)
}
