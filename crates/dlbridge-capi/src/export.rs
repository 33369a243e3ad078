//! Exports: makes tensors of memory and its owner, and descriptors, capsules and Python objects of
//! tensors.
//! Importing belongs to `import`.
//! Invariant: a call that fails consumes nothing: neither a tensor nor an owner.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use dlbridge::sys::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned,
    DLTensor,
};
use dlbridge::{Flags, Tensor};

use crate::entry::write_out;
use crate::error::{Error, NULL_TENSOR, Result, Status};
use crate::handle::{Origin, TensorHandle};
use crate::info::{DataType, DeviceId};
use crate::python::{self, PyObject};
use crate::queue::{self, ReleaseQueue, Token};
use crate::sized;

/// Memory to export, and its owner. Set `struct_size`, and zero the fields that are not needed:
/// `dlb_memory memory = {.struct_size = sizeof memory, ...};`. Shape and strides are copied.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Memory {
    /// `sizeof(dlb_memory)`.
    pub struct_size: usize,
    /// The address of element `[0, 0, ...]` less `byte_offset`; may be null if there are no
    /// elements.
    pub data: *mut c_void,
    /// Added to `data`, in bytes.
    pub byte_offset: u64,
    /// `ndim` extents, outermost axis first; may be null if `ndim` is 0.
    pub shape: *const i64,
    /// `ndim` steps from one element to the next, in elements; null for row-major order.
    pub strides: *const i64,
    /// The sum of `DLB_FLAG_*`.
    pub flags: u64,
    /// The device that the memory is on; kind 0, as of a forgotten field, is refused. Work that the
    /// device has queued on the memory must be done.
    pub device: DeviceId,
    /// The type of the elements.
    pub dtype: DataType,
    /// The number of axes, at most 64.
    pub ndim: i32,
    /// Passed to `release`, or put into `queue`, once the memory is no longer used.
    pub token: *mut c_void,
    /// Called once, on any thread, with or without the GIL. It returns: it must not throw, call
    /// `longjmp`, or end the thread. Within 16 of them, `dlb_release` leaves a tensor to the outermost, so that chains
    /// need little stack. Null, without a `queue`: the memory lives forever.
    pub release: Option<unsafe extern "C" fn(token: *mut c_void)>,
    /// For owners that cannot be called on any thread. Not together with `release`.
    pub queue: *mut ReleaseQueue,
}

// SAFETY: `Growing`'s duty: pointers and integers without padding; null is a value of each pointer.
unsafe impl sized::Growing for Memory {
    const FIRST: usize = size_of::<Self>();
}

/// The sum of `DLB_FLAG_*`.
const FLAGS: u64 = Flags::READ_ONLY.0 | Flags::IS_COPIED.0 | Flags::SUBBYTE_PADDED.0;

/// Calls the owner's `release`, or queues its token, when dropped.
enum Release {
    Call(unsafe extern "C" fn(*mut c_void), Token),
    Queue(Arc<ReleaseQueue>, Token),
    Nothing,
}

impl Release {
    /// # Safety
    ///
    /// The memory's queue is null or live, and its function may be called once on any thread.
    unsafe fn new(memory: &Memory) -> Self {
        let token = Token(memory.token);
        match memory.release {
            Some(function) => Self::Call(function, token),
            None if memory.queue.is_null() => Self::Nothing,
            // SAFETY: the caller's duty.
            None => Self::Queue(unsafe { queue::share(memory.queue) }, token),
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        match self {
            // SAFETY: the caller's duty, promised to `new`; this is its one call.
            Self::Call(function, token) => unsafe { function(token.0) },
            Self::Queue(queue, token) => queue.push(*token),
            Self::Nothing => {}
        }
    }
}

/// The caller's memory, and what it describes. The descriptor has the caller's lists, and is not validated.
///
/// # Safety
///
/// As for [`dlb_export`].
unsafe fn described(memory: *const Memory) -> Result<(Memory, DLTensor)> {
    if memory.is_null() {
        return Err(Error::Invalid("memory: expected a dlb_memory, found a null pointer"));
    }
    // SAFETY: the caller's duty.
    let memory = unsafe { sized::read(memory) }?;
    let Memory { device, dtype, ndim, .. } = memory;
    if device.kind == 0 {
        return Err(Error::Invalid(
            "device: expected one of DLB_DEVICE_*, found 0; host memory is {DLB_DEVICE_CPU, 0}",
        ));
    }
    if memory.flags & !FLAGS != 0 {
        return Err(Error::Invalid(
            "flags: expected the sum of DLB_FLAG_*, found other bits, as of a field that is not set",
        ));
    }
    if memory.release.is_some() && !memory.queue.is_null() {
        return Err(Error::Invalid("release, queue: expected one of them, found both"));
    }
    let tensor = DLTensor {
        data: memory.data,
        device: DLDevice { device_type: DLDeviceType(device.kind), device_id: device.id },
        ndim,
        dtype: DLDataType {
            code: DLDataTypeCode(dtype.code),
            bits: dtype.bits,
            lanes: dtype.lanes,
        },
        shape: memory.shape.cast_mut(),
        strides: memory.strides.cast_mut(),
        byte_offset: memory.byte_offset,
    };
    Ok((memory, tensor))
}

/// The tensor of some memory, which has the owner from here on. An error leaves the owner alone.
///
/// # Safety
///
/// As for [`dlb_export`]; `tensor` describes the memory.
unsafe fn export(memory: &Memory, tensor: &DLTensor) -> Result<Tensor> {
    // SAFETY: the caller's duty.
    let release = || unsafe { Release::new(memory) };
    // An owner may release tensors.
    // SAFETY: lists of `ndim` numbers; the rest is the caller's duty; an owner may be dropped on any thread.
    Ok(unsafe { dlbridge::ffi::from_holder_raw(release, tensor, Flags(memory.flags)) }?)
}

/// Makes a tensor of memory. On success the tensor has the owner.
///
/// # Safety
///
/// `memory` is null or as its fields say: lists of `ndim` numbers, elements that may be read and,
/// unless they are read-only, written until the owner is released, a function that may be called on
/// any thread, a queue that is null or live. `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_export(memory: *const Memory, out: *mut *mut TensorHandle) -> Status {
    let export = || {
        // SAFETY: the caller's duty.
        let (memory, tensor) = unsafe { described(memory) }?;
        // SAFETY: the same.
        Ok(TensorHandle::into_raw(unsafe { export(&memory, &tensor) }?, Origin::C, None))
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

/// `dlb_export` and `dlb_into_python` in one: a Python object over memory.
///
/// # Safety
///
/// As for these two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_export_python(
    memory: *const Memory,
    out: *mut *mut PyObject,
) -> Status {
    let export = || {
        // SAFETY: the caller's duty.
        let (memory, tensor) = unsafe { described(memory) }?;
        // Without an owner. It has copies of the lists: Python code that runs before the export may change the caller's.
        // SAFETY: lists of `ndim` numbers (the caller's duty); nothing reads the elements.
        let copied = unsafe { dlbridge::ffi::from_owner_raw((), &tensor, Flags(memory.flags)) }?;
        // SAFETY: the caller's duty, with the lists of `copied`.
        let tensor = || unsafe { export(&memory, &copied.as_raw()) };
        let take = || tensor().unwrap_or_else(|_| unreachable!("validated just now"));
        Ok(python::object(python::attached()?, take)?.into_raw())
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

/// Consumes a tensor and makes a versioned managed tensor (DLPack 1.x) of it, whose deleter is to
/// be called once, on any thread. `flags` of a tensor with other references lacks
/// `DLB_FLAG_IS_COPIED`.
///
/// # Safety
///
/// `tensor` is null or a reference that the caller owns; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_versioned(
    tensor: *mut TensorHandle,
    out: *mut *mut DLManagedTensorVersioned,
) -> Status {
    let export = || {
        check_tensor(tensor)?;
        // SAFETY: the caller's duty, and not null.
        Ok(unsafe { TensorHandle::consume(tensor, true) }.into_raw())
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

/// Consumes a tensor and makes a legacy managed tensor (DLPack before 1.0) of it. That ABI cannot
/// say read-only: such tensors are `DLB_STATUS_REFUSED`. Otherwise as `dlb_into_versioned`.
///
/// # Safety
///
/// As for `dlb_into_versioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_legacy(
    tensor: *mut TensorHandle,
    out: *mut *mut DLManagedTensor,
) -> Status {
    let export = || {
        // SAFETY: the caller's duty.
        dlbridge::ffi::check_legacy(unsafe { TensorHandle::borrow(tensor) }?.tensor())?;
        // SAFETY: the same, and not null.
        Ok(unsafe { TensorHandle::consume(tensor, false) }.into_raw_legacy()?)
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

/// Consumes a tensor and makes a Python object of it, with `__dlpack__` and `__dlpack_device__`,
/// which every framework's `from_dlpack` accepts, any number of times. The caller owns the new
/// reference. Work that a device has queued on the memory must be done.
///
/// # Safety
///
/// `tensor` is null or a reference that the caller owns; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_python(
    tensor: *mut TensorHandle,
    out: *mut *mut PyObject,
) -> Status {
    let export = || {
        check_tensor(tensor)?;
        // SAFETY: the caller's duty, and not null.
        let take = || unsafe { TensorHandle::consume(tensor, true) };
        Ok(python::object(python::attached()?, take)?.into_raw())
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

/// Consumes a tensor and makes a capsule of it, for one consumer: versioned (DLPack 1.x) if
/// `versioned` is not 0, else legacy. Otherwise as `dlb_into_python` and `dlb_into_legacy`.
///
/// # Safety
///
/// As for `dlb_into_python`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_capsule(
    tensor: *mut TensorHandle,
    versioned: c_int,
    out: *mut *mut PyObject,
) -> Status {
    let export = || {
        // SAFETY: the caller's duty.
        let handle = unsafe { TensorHandle::borrow(tensor) }?;
        if versioned == 0 {
            dlbridge::ffi::check_legacy(handle.tensor())?;
        }
        // SAFETY: the caller's duty, and not null.
        let take = || unsafe { TensorHandle::consume(tensor, versioned != 0) };
        Ok(python::capsule(python::attached()?, versioned != 0, take)?.into_raw())
    };
    // SAFETY: the caller's duty.
    unsafe { write_out(out, export) }
}

fn check_tensor(tensor: *mut TensorHandle) -> Result<()> {
    if tensor.is_null() { Err(NULL_TENSOR) } else { Ok(()) }
}
