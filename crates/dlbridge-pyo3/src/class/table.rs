//! The exchange table that `dlbridge.Tensor` and users' classes publish.
//! Answering `__dlpack__` belongs to `answer`.
//! Invariant: no panic leaves a callback. A callback that fails has set an exception, and consumed
//! nothing.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use dlbridge::protocol::export::Request;
use dlbridge::protocol::table::CAPSULE;
use dlbridge::sys::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLPackManagedTensorToPyObjectNoSync, DLPackSetError, DLPackVersion, DLTensor,
};
use dlbridge::{Access, DType, DescriptorError, Device, DeviceKind, Tensor, TypeCode};
use pyo3::ffi;
use pyo3::prelude::*;

use super::traits::{ExportDlpack, export, permitted};
use crate::ffi::callbacks::{guarded, panicked, with_object};
use crate::ffi::free_threaded::prepare_class;
use crate::stream::{Ready, settle};
use crate::{Error, Result, TensorObject, release};

/// A table that threads share: its fields never change.
struct Table(DLPackExchangeAPI);

// SAFETY: immutable, and its functions may be called from any attached thread (F6).
unsafe impl Sync for Table {}

/// The table of one class: an associated constant, since a `static` cannot be generic.
struct TableOf<T>(PhantomData<T>);

impl<T: ExportDlpack> TableOf<T> {
    const TABLE: &'static Table = &Table(DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion::CURRENT,
            prev_api: ptr::null_mut(),
        },
        managed_tensor_allocator: Some(allocate),
        managed_tensor_from_py_object_no_sync: Some(from_object::<T>),
        managed_tensor_to_py_object_no_sync: Some(to_object),
        // Null, which DLPack permits here alone, rather than a callback that always fails: a
        // consumer then knows beforehand that it has to take an owning tensor.
        dltensor_from_py_object_no_sync: if T::BORROW.is_some() { Some(borrow::<T>) } else { None },
        current_work_stream: Some(current_work_stream),
    });
}

/// The table of a class.
#[inline(always)]
pub(crate) fn table<T: ExportDlpack>() -> &'static DLPackExchangeAPI {
    &TableOf::<T>::TABLE.0
}

/// The capsule for the type's attribute, which is made when the class is: before another thread has it.
pub(super) fn capsule<T: ExportDlpack>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = (&raw const TableOf::<T>::TABLE.0).cast_mut().cast::<c_void>();
    // SAFETY: a constant table and a static name; nothing is to be released (F6).
    let capsule = unsafe { ffi::PyCapsule_New(table, CAPSULE.as_ptr(), None) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) }?;
    prepare_class(&py.get_type::<T>(), &capsule)?;
    Ok(capsule)
}

/// Whether a table is one of this library, which keeps read-only memory read-only and allocates
/// host memory.
pub(crate) fn is_ours(table: &DLPackExchangeAPI) -> bool {
    let to_object_of_ours: DLPackManagedTensorToPyObjectNoSync = to_object;
    let found = table.managed_tensor_to_py_object_no_sync;
    found.is_some_and(|found| ptr::fn_addr_eq(found, to_object_of_ours))
}

/// What a callback returns: 0 on success, otherwise -1 with an exception set.
fn status(outcome: Option<()>) -> c_int {
    outcome.map_or(-1, |()| 0)
}

unsafe extern "C" fn from_object<T: ExportDlpack>(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let work = |object: &Bound<'_, T>| {
        let (tensor, ready) = export(object.as_borrowed())?;
        settle(ready.as_deref(), tensor.device())?;
        let request = permitted(object, &tensor, Request::default())?;
        let is_copied = request.copy == Some(true);
        let tensor = if is_copied { copied(object.py(), &tensor)? } else { tensor };
        // SAFETY: the caller's duty is to give a place to write to.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    };
    // SAFETY: called with the interpreter attached, and a Python object (DLPack 1.2; F1).
    status(unsafe { with_object(object.cast(), work) })
}

/// A copy, made once the host may read the memory.
fn copied(py: Python<'_>, tensor: &Tensor) -> Result<Tensor> {
    if let Some(ready) = Ready::for_tensor(tensor) {
        py.detach(|| ready.before_host(tensor.device()))?;
    }
    Ok(tensor.to_contiguous()?)
}

/// Makes a `dlbridge.Tensor`, for every class. DLPack's header asks for an array of the producer's
/// own type, but not every class can be made from any tensor.
///
/// On failure, the caller keeps the tensor.
unsafe extern "C" fn to_object(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the table's functions are called with the interpreter attached (DLPack 1.2; F1).
    let py = unsafe { Python::assume_attached() };
    let outcome = guarded::<TensorObject, _>(py, || {
        // SAFETY: the caller's duty is to give a tensor away, if validation accepts it.
        let tensor = unsafe { release::try_adopt(tensor) }?.into_shared();
        match TensorObject::sharing(tensor.clone()).into_bound(py) {
            // SAFETY: the caller's duty is to give a place to write to.
            Ok(object) => unsafe { out.write(object.into_ptr().cast()) },
            Err(error) => {
                // Not released: it stays the caller's.
                std::mem::forget(tensor.into_inner());
                return Err(error.into());
            }
        }
        Ok(())
    });
    status(outcome)
}

/// The descriptor of the tensor that the object keeps. It is valid while the object lives.
unsafe extern "C" fn borrow<T: ExportDlpack>(object: *mut c_void, out: *mut DLTensor) -> c_int {
    let work = |object: &Bound<'_, T>| {
        let Some(borrow) = &T::BORROW else {
            return Err(Error::buffer(
                "access: expected a tensor to borrow, found a class that keeps none",
            ));
        };
        // What it keeps is never replaced: only a frozen class has a `Borrow`.
        let object = object.try_borrow().map_err(PyErr::from)?;
        let tensor = borrow.tensor(&object);
        check_borrowable(tensor)?;
        settle(object.ready(tensor).as_deref(), tensor.device())?;
        // SAFETY: the caller's duty is to give a place to write to; what is written there it uses
        // while the object lives (C3).
        unsafe { out.write(tensor.as_raw()) };
        Ok(())
    };
    // SAFETY: called with the interpreter attached, and a Python object (DLPack 1.2; F1).
    status(unsafe { with_object(object.cast(), work) })
}

/// A plain descriptor has no flags, so consumers assume that the memory is writable.
fn check_borrowable(tensor: &Tensor) -> Result<()> {
    if tensor.is_read_only() {
        return Err(Error::buffer(
            "access: a borrowed descriptor cannot say read-only; take an owning one",
        ));
    }
    if tensor.access() == Access::Exclusive {
        return Err(Error::buffer(
            "access: expected shared memory, found a tensor that is exclusive to the class; \
             share it with into_shared()",
        ));
    }
    Ok(())
}

/// Host memory has no stream. On a device it is the default stream, which waits for pending work on
/// a tensor's memory before the tensor is exported (`ExportDlpack::ready`).
unsafe extern "C" fn current_work_stream(_: DLDeviceType, _: i32, out: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's duty is to give a place to write to.
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
    // SAFETY: the caller's duty is to give a prototype, whose data is not looked at.
    let outcome = catch_unwind(AssertUnwindSafe(|| unsafe { zeros_like(prototype) }));
    let error = match outcome {
        Ok(Ok(tensor)) => {
            // SAFETY: the caller's duty is to give a place to write to.
            unsafe { out.write(tensor.into_raw()) };
            return 0;
        }
        Ok(Err(error)) => error.to_string(),
        Err(payload) => panicked("DLPack allocator", "its export", payload),
    };
    if let (Some(set_error), Ok(message)) = (set_error, CString::new(error)) {
        let kind: *const c_char = c"BufferError".as_ptr();
        // SAFETY: strings that outlive the call, and the caller's own context (F2).
        unsafe { set_error(context, kind, message.as_ptr()) };
    }
    -1
}

/// # Safety
///
/// `prototype` is null or a descriptor whose shape, if not null, has `ndim` numbers.
unsafe fn zeros_like(prototype: *mut DLTensor) -> std::result::Result<Tensor, dlbridge::Error> {
    // SAFETY: the caller's duty.
    let prototype = unsafe { prototype.as_ref() }.ok_or(DescriptorError::NullTensor)?;
    let DLTensor { dtype, device, ndim, shape, .. } = *prototype;
    let device = Device::new(DeviceKind(device.device_type.0), device.device_id);
    if device != Device::CPU {
        return Err(dlbridge::Error::NotHostAccessible { device });
    }
    let rank = usize::try_from(ndim).ok().filter(|&rank| rank <= dlbridge::MAX_RANK);
    let rank = rank.ok_or(DescriptorError::RankOutOfRange { ndim })?;
    let shape = match (rank, shape.is_null()) {
        (0, _) => &[],
        (_, true) => {
            return Err(DescriptorError::NullShape { ndim }.into());
        }
        // SAFETY: not null, and the rest is the caller's duty.
        (_, false) => unsafe { slice::from_raw_parts(shape, rank) },
    };
    let dtype = DType { code: TypeCode(dtype.code.0), bits: dtype.bits, lanes: dtype.lanes };
    Tensor::zeros(dtype, shape)
}
