//! DLPack's exchange table, as a class of ours publishes it. Those of others are called in `published`.
//! What a class exports belongs to `class`.
//! Invariants: no panic leaves a callback. A callback that fails has set an exception, and consumed
//! nothing.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::{ptr, slice};

use dlbridge::ffi::{catch, on_unwind};
use dlbridge::protocol::table::CAPSULE;
use dlbridge::sys::{
    DLDeviceType, DLManagedTensorVersioned, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLPackManagedTensorAllocator, DLPackSetError, DLPackVersion, DLTensor,
};
use dlbridge::{DType, DescriptorError, Device, DeviceKind, Tensor, TypeCode};
use pyo3::prelude::*;

use super::borrow::{give, give_shared, ready};
use super::callbacks::{Publish, caught, guarded, panicked, with_object};
use super::capsule::{self, try_adopt};
use super::class::prepare_class;
use crate::Error;
use crate::interpreter::check_ended;

/// A table that threads share: its fields never change.
struct Table(DLPackExchangeAPI);

// SAFETY: immutable, and its functions may be called from any attached thread (F6).
unsafe impl Sync for Table {}

/// The table of one class: an associated constant, since a `static` cannot be generic.
struct TableOf<T>(PhantomData<T>);

impl<T: Publish> TableOf<T> {
    const TABLE: &'static Table = &Table(DLPackExchangeAPI {
        header: DLPackExchangeAPIHeader {
            version: DLPackVersion::CURRENT,
            prev_api: ptr::null_mut(),
        },
        managed_tensor_allocator: Some(allocate),
        managed_tensor_from_py_object_no_sync: Some(from_object::<T>),
        managed_tensor_to_py_object_no_sync: Some(to_object::<T>),
        // Null, which DLPack permits here alone, rather than a callback that always fails: a
        // consumer then knows beforehand that it has to take an owning tensor.
        dltensor_from_py_object_no_sync: if T::LENT.is_some() { Some(borrow::<T>) } else { None },
        current_work_stream: Some(current_work_stream),
    });
}

/// The table of a class.
#[inline(always)]
pub(crate) fn of<T: Publish>() -> &'static DLPackExchangeAPI {
    &TableOf::<T>::TABLE.0
}

/// The capsule for the type's attribute, which is made when the class is: before another thread has it.
pub(crate) fn capsule<T: Publish>(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = ptr::from_ref(of::<T>()).cast_mut().cast::<c_void>();
    // SAFETY: a constant table; nothing is to be released (F6).
    let capsule = unsafe { capsule::make(py, table, CAPSULE, None) }?;
    on_unwind(check_ended);
    prepare_class(&py.get_type::<T>(), &capsule)?;
    Ok(capsule)
}

/// Whether a table is one of this library, which keeps read-only memory read-only and allocates
/// host memory.
pub(super) fn is_ours(table: &DLPackExchangeAPI) -> bool {
    let ours: DLPackManagedTensorAllocator = allocate;
    let found = table.managed_tensor_allocator;
    found.is_some_and(|found| ptr::fn_addr_eq(found, ours))
}

/// What a callback returns: 0 on success, otherwise -1 with an exception set.
fn status(outcome: Option<()>) -> c_int {
    outcome.map_or(-1, |()| 0)
}

unsafe extern "C" fn from_object<T: Publish>(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let work = |object: &Bound<'_, T>| {
        let tensor = give(object.py(), T::exported(object)?)?;
        // SAFETY: the caller's duty is to give a place to write to.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    };
    // SAFETY: called with the interpreter attached, and a Python object (DLPack 1.2; F1).
    status(unsafe { with_object(object.cast(), work) })
}

/// Makes a Python object. On failure, the caller keeps the tensor.
unsafe extern "C" fn to_object<T: Publish>(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the table's functions are called with the interpreter attached (DLPack 1.2; F1).
    let py = unsafe { Python::assume_attached() };
    let outcome = guarded::<T, _>(py, || {
        ready(py)?;
        // SAFETY: the caller's duty is to give a tensor away, if validation accepts it.
        let tensor = give_shared(unsafe { try_adopt(tensor) }?);
        // A panic that left this frame would drop the tensor, which is the caller's.
        match caught::<T, _>(py, "its export", || Ok(T::made(py, tensor.clone())?)) {
            // SAFETY: the caller's duty is to give a place to write to.
            Ok(object) => unsafe { out.write(object.into_ptr().cast()) },
            Err(error) => {
                // Not released: it stays the caller's.
                std::mem::forget(tensor.into_inner());
                return Err(error);
            }
        }
        Ok(())
    });
    status(outcome)
}

/// The descriptor of the tensor that the object keeps. It is valid while the object lives.
unsafe extern "C" fn borrow<T: Publish>(object: *mut c_void, out: *mut DLTensor) -> c_int {
    let work = |object: &Bound<'_, T>| {
        let Some(borrow) = &T::LENT else {
            return Err(Error::buffer(
                "access: expected a tensor to borrow, found a class that keeps none",
            ));
        };
        // What it keeps is never replaced: only a frozen class has a `Borrow`.
        let object = object.try_borrow().map_err(PyErr::from)?;
        let tensor = borrow.tensor(&object);
        object.before_borrow(tensor)?;
        // SAFETY: the caller's duty is to give a place to write to; what is written there it uses
        // while the object lives (C3).
        unsafe { out.write(tensor.as_raw()) };
        Ok(())
    };
    // SAFETY: called with the interpreter attached, and a Python object (DLPack 1.2; F1).
    status(unsafe { with_object(object.cast(), work) })
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
    let outcome = catch(|| unsafe { zeros_like(prototype) });
    let error = match outcome {
        Ok(Ok(tensor)) => {
            // SAFETY: the caller's duty is to give a place to write to.
            unsafe { out.write(tensor.into_raw()) };
            return 0;
        }
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panicked("DLPack allocator", "its export", &panic),
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
unsafe fn zeros_like(prototype: *mut DLTensor) -> Result<Tensor, dlbridge::Error> {
    // SAFETY: the caller's duty.
    let prototype = unsafe { prototype.as_ref() }.ok_or(DescriptorError::NullTensor)?;
    let DLTensor { dtype, device, ndim, shape, .. } = *prototype;
    let device = Device::new(DeviceKind(device.device_type.0), device.device_id);
    if device != Device::CPU {
        return Err(dlbridge::Error::NotHostAccessible { device });
    }
    let axes = usize::try_from(ndim).ok().filter(|&axes| axes <= dlbridge::MAX_NDIM);
    let axes = axes.ok_or(DescriptorError::NdimOutOfRange { ndim })?;
    let shape = match (axes, shape.is_null()) {
        (0, _) => &[],
        (_, true) => {
            return Err(DescriptorError::NullShape { ndim }.into());
        }
        // SAFETY: not null, and the rest is the caller's duty.
        (_, false) => unsafe { slice::from_raw_parts(shape, axes) },
    };
    let dtype = DType { code: TypeCode(dtype.code.0), bits: dtype.bits, lanes: dtype.lanes };
    Tensor::zeros(dtype, shape)
}

#[cfg(test)]
mod tests {
    use dlbridge::ArcTensor;
    use dlbridge_testing::Foreign;
    use pyo3::exceptions::PyRuntimeError;

    use super::super::callbacks::Borrow;
    use super::*;
    use crate::Result;

    /// A class whose objects cannot be made.
    #[pyclass(frozen)]
    struct Unmakeable;

    impl Publish for Unmakeable {
        const LENT: Option<Borrow<Self>> = None;

        fn drops_objects() -> bool {
            false
        }

        fn exported(_: &Bound<'_, Self>) -> Result<Tensor> {
            unreachable!("there is no object")
        }

        fn before_borrow(&self, _: &Tensor) -> Result<()> {
            unreachable!("there is no object")
        }

        fn on_host(_: &Bound<'_, Self>) -> Result<Tensor> {
            unreachable!("there is no object")
        }

        fn made(_: Python<'_>, tensor: ArcTensor) -> PyResult<Bound<'_, PyAny>> {
            panic!("no object of {:?}", tensor.shape())
        }
    }

    /// A panic while an exchange table of dlbridge made an object dropped the tensor, which the
    /// table's caller dropped as well.
    #[test]
    fn a_panic_while_an_object_is_made_leaves_the_tensor_with_its_owner() {
        Python::attach(|py| {
            let foreign = Foreign::new(&[2], &[1.0_f32, 2.0]);
            let releases = foreign.releases();
            let tensor = foreign.into_versioned();
            let mut object = ptr::null_mut();
            // SAFETY: attached, with a valid tensor and a place to write to (F1).
            let status = unsafe { to_object::<Unmakeable>(tensor, &raw mut object) };
            let error = PyErr::take(py).expect("an exception");
            assert!(error.is_instance_of::<PyRuntimeError>(py), "{error}");
            assert_eq!((status, releases.count()), (-1, 0));
            // SAFETY: a call that failed consumed nothing (R3).
            unsafe { dlbridge::ffi::release_raw(tensor) };
            assert_eq!(releases.count(), 1);
        });
    }
}
