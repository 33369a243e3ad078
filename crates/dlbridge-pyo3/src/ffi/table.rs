//! DLPack's exchange tables: the one that a class of ours publishes, and calls of those of others.
//! What a class exports belongs to `class`, what is imported to `import`. Only this file calls a table.
//! Invariants: no panic leaves a callback. A callback that fails has set an exception, and consumed
//! nothing. A table is called only with objects of types that go by it.

use std::ffi::{CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{ptr, slice};

use dlbridge::ffi::Unwinds;
use dlbridge::protocol::table::{ATTRIBUTE, CAPSULE, usable};
use dlbridge::sys::{
    DLDeviceType, DLManagedTensorVersioned, DLPackDLTensorFromPyObjectNoSync, DLPackExchangeAPI,
    DLPackExchangeAPIHeader, DLPackManagedTensorAllocator, DLPackManagedTensorFromPyObjectNoSync,
    DLPackManagedTensorToPyObjectNoSync, DLPackSetError, DLPackVersion, DLTensor,
};
use dlbridge::{DType, DescriptorError, Device, DeviceKind, Tensor, TypeCode};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyType};
use pyo3::{Borrowed, intern};

use super::allocate::Allocates;
use super::callbacks::{Publish, guarded, panicked, with_object};
use super::capsule::{self, adopt, try_adopt};
use super::descriptor::DescriptorSpace;
use super::driver::Stream;
use super::ended::stopped_if_ended;
use super::head::prepare_class;
use crate::{Error, Result};

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
    prepare_class(&py.get_type::<T>(), &capsule)?;
    Ok(capsule)
}

/// Whether a table is one of this library, which keeps read-only memory read-only and allocates
/// host memory.
fn is_ours(table: &DLPackExchangeAPI) -> bool {
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
        let tensor = T::exported(object)?;
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
        // SAFETY: the caller's duty is to give a tensor away, if validation accepts it.
        let tensor = unsafe { try_adopt(tensor) }?.into_shared();
        match T::made(py, tensor.clone()) {
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

/// The table in a type's attribute, if its version is supported.
pub(crate) fn find(kind: &Bound<'_, PyType>) -> Option<&'static DLPackExchangeAPI> {
    let capsule = kind.getattr(intern!(kind.py(), ATTRIBUTE)).ok()?;
    let capsule = capsule.cast::<PyCapsule>().ok()?;
    let header = capsule.pointer_checked(Some(CAPSULE)).ok()?;
    // SAFETY: a table that a type publishes is static, and starts with its header in every version
    // (DLPack 1.2, DLPackExchangeAPIHeader; F5, F6).
    let header = unsafe { header.cast::<DLPackExchangeAPIHeader>().as_ref() };
    // SAFETY: the same of each older table; null ends the chain (F5, F6).
    let found = usable(Some(header), |newer| unsafe { newer.prev_api.as_ref() })?;
    // SAFETY: a table of this major version has this layout (F5).
    Some(unsafe { &*ptr::from_ref(found).cast::<DLPackExchangeAPI>() })
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

    /// The function that gives a tensor to own, if the table has it.
    #[inline(always)]
    pub(crate) fn gives(self) -> Option<Gives<'a, 'py>> {
        let function = self.table.managed_tensor_from_py_object_no_sync?;
        Some(Gives { object: self.object, function })
    }

    /// The function that describes memory to borrow, if the table has it.
    #[inline(always)]
    pub(crate) fn describes(self) -> Option<Describes<'a, 'py>> {
        let function = self.table.dltensor_from_py_object_no_sync?;
        Some(Describes { object: self.object, function })
    }

    /// The function that makes an array of a tensor, if the table has it.
    #[inline(always)]
    pub(crate) fn makes(self) -> Option<Makes> {
        self.table.managed_tensor_to_py_object_no_sync.map(Makes)
    }

    /// The function that allocates memory, if the table has it.
    pub(crate) fn allocates(self) -> Option<Allocates> {
        self.table.managed_tensor_allocator.map(Allocates)
    }

    /// The current stream of the table's framework; `None` if the table failed.
    #[cold]
    pub(crate) fn current_stream(self, device: Device) -> Option<Stream> {
        let Some(current_work_stream) = self.table.current_work_stream else {
            return Some(Stream::DEFAULT);
        };
        // Some leave it as it is where they mean the default stream.
        let mut handle = ptr::null_mut();
        let kind = DLDeviceType(device.kind.0);
        // SAFETY: a callback of a type's own table, a place for the answer, and attached (F1, F5).
        let status = stopped_if_ended(|| unsafe {
            current_work_stream.unwinding()(kind, device.id, &raw mut handle)
        });
        // SAFETY: the producer's own current stream (SAFETY.md, T11).
        (status == 0).then(|| unsafe { Stream::from_handle(handle) })
    }
}

/// Gives a tensor over an object's memory to own.
pub(crate) struct Gives<'a, 'py> {
    object: Borrowed<'a, 'py, PyAny>,
    function: DLPackManagedTensorFromPyObjectNoSync,
}

impl Gives<'_, '_> {
    /// `None` if the table failed.
    #[inline(always)]
    pub(crate) fn tensor(&self) -> Result<Option<Tensor>> {
        let mut tensor = ptr::null_mut();
        // SAFETY: the object goes by the table, and the interpreter is attached (F1, F5).
        let status = stopped_if_ended(|| unsafe {
            self.function.unwinding()(self.object.as_ptr().cast(), &raw mut tensor)
        });
        if status != 0 {
            return Ok(None);
        }
        // SAFETY: given to us by the table, whose producer is trusted (T1 to T9).
        unsafe { adopt(tensor) }.map(Some)
    }
}

/// Describes an object's memory, without an allocation.
pub(crate) struct Describes<'a, 'py> {
    object: Borrowed<'a, 'py, PyAny>,
    function: DLPackDLTensorFromPyObjectNoSync,
}

impl Describes<'_, '_> {
    /// Writes the descriptor to `space`; `false` if the table failed.
    #[inline(always)]
    pub(crate) fn write(&self, space: &mut DescriptorSpace) -> bool {
        // SAFETY: the object goes by the table, and the interpreter is attached (F1, F5).
        let status = stopped_if_ended(|| unsafe {
            self.function.unwinding()(self.object.as_ptr().cast(), space.descriptor.as_mut_ptr())
        });
        status == 0
    }
}

/// Makes an array of a framework.
pub(crate) struct Makes(DLPackManagedTensorToPyObjectNoSync);

impl Makes {
    /// An array of a tensor. A tensor that the table rejects is released.
    pub(crate) fn array(self, py: Python<'_>, tensor: Tensor) -> Result<Bound<'_, PyAny>> {
        let tensor = tensor.into_raw();
        let mut object: *mut c_void = ptr::null_mut();
        // SAFETY: the interpreter is attached, and the tensor was exported just now (F1, R3).
        let status = stopped_if_ended(|| unsafe { self.0.unwinding()(tensor, &raw mut object) });
        if status != 0 {
            // Fetched first: releasing may run Python code, which must not find an exception set.
            let error = failure(py);
            // SAFETY: a table that fails leaves the tensor with its caller (`dlbridge-sys`; T1).
            unsafe { dlbridge::ffi::release_raw(tensor) };
            return Err(error.into());
        }
        // SAFETY: a call that succeeds gives a new reference; null is asked for (F3).
        let object = unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) };
        object.ok_or_else(|| failure(py).into())
    }
}

/// The exception that the table raised; some tables fail without one.
#[cold]
fn failure(py: Python<'_>) -> PyErr {
    let unsaid = || {
        PyBufferError::new_err("exchange table: expected an array, found none, without a reason")
    };
    PyErr::take(py).unwrap_or_else(unsaid)
}
