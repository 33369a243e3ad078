//! Tensors out of C: memory and its owner become a tensor, a tensor becomes what others take.
//! Taking tensors over does not belong here (see `import`).
//! Invariant: an owner that was handed in is released once, whatever fails.

use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{Flags, MAX_RANK, Tensor};

use crate::entry::{contained, guarded};
use crate::error::{Error, Result, Status};
use crate::import::{NULL_OUT, TensorHandle};
use crate::info::{DataType, DeviceId};
use crate::python::{self, PyObject, Python};
use crate::queue::{self, ReleaseQueue, Token};

/// Memory that is to become a tensor. Shape and strides are copied.
#[derive(Debug)]
#[repr(C)]
pub struct Memory {
    /// The address of element `[0, 0, ...]`; may be null if there are no elements.
    pub data: *mut c_void,
    /// `rank` extents, outermost axis first; may be null if `rank` is 0.
    pub shape: *const i64,
    /// `rank` steps from one element to the next, in elements; null for compact row-major order.
    pub strides: *const i64,
    /// DLPack's flags: 1 read-only, 2 a copy made for the consumer, 4 padded sub-byte elements.
    pub flags: u64,
    /// Where the memory lies.
    pub device: DeviceId,
    /// The type of the elements.
    pub dtype: DataType,
    /// The number of axes.
    pub rank: i32,
}

/// Who is told when an exported tensor's memory is used no more. Either a function or a queue, or
/// neither for memory that lives forever.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Owner {
    /// What the function is called with, or what is put into the queue.
    pub token: *mut c_void,
    /// Called once, on whichever thread drops the tensor last. It must not unwind.
    pub release: Option<unsafe extern "C" fn(token: *mut c_void)>,
    /// Used if there is no function.
    pub queue: *const ReleaseQueue,
}

/// An owner that releases itself.
enum Release {
    Call(unsafe extern "C" fn(*mut c_void), Token),
    Queue(Arc<ReleaseQueue>, Token),
    Nothing,
}

impl Release {
    /// # Safety
    ///
    /// The owner's queue is null or live, and its function may be called once on any thread.
    unsafe fn new(owner: Owner) -> Self {
        let token = Token(owner.token);
        match owner.release {
            Some(function) => Self::Call(function, token),
            None if owner.queue.is_null() => Self::Nothing,
            // SAFETY: the caller's duty.
            None => Self::Queue(unsafe { queue::share(owner.queue) }, token),
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

/// Makes a tensor of memory that somebody owns. The owner is taken over even on failure.
///
/// # Safety
///
/// `memory` is null or describes memory that the owner keeps, and whose elements may be read and,
/// unless it is read-only, written until the owner is released; its lists have `rank` numbers.
/// The owner's function may be called on any thread, its queue is null or live. `out` is null or
/// can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_export(
    memory: *const Memory,
    owner: Owner,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let release = unsafe { Release::new(owner) };
    guarded(|| {
        if out.is_null() {
            return Err(NULL_OUT);
        }
        // SAFETY: the caller's duty.
        let tensor = unsafe { build(memory, release) }?;
        // SAFETY: the caller's duty.
        unsafe { out.write(TensorHandle::into_raw(tensor)) };
        Ok(())
    })
}

/// `dlb_export` and `dlb_into_python` in one: a Python object over memory that somebody owns.
///
/// # Safety
///
/// As for these two.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_share_python(
    memory: *const Memory,
    owner: Owner,
    out: *mut *mut PyObject,
) -> Status {
    // SAFETY: the caller's duty.
    let release = unsafe { Release::new(owner) };
    let object = |python| {
        // SAFETY: the caller's duty.
        let tensor = unsafe { build(memory, release) }?;
        python::object(python, tensor)
    };
    // SAFETY: the caller's duty.
    unsafe { hand_out(out, object) }
}

/// # Safety
///
/// As for [`dlb_export`].
unsafe fn build(memory: *const Memory, release: Release) -> Result<Tensor> {
    // SAFETY: the caller's duty.
    let memory = unsafe { memory.as_ref() }.ok_or(Error::Invalid("memory: null pointer"))?;
    let ndim = memory.rank;
    let rank = usize::try_from(ndim).ok().filter(|&rank| rank <= MAX_RANK);
    let rank = rank.ok_or(dlbridge::Error::RankOutOfRange { ndim })?;
    // SAFETY: the caller's duty.
    let shape = unsafe { list(memory.shape, rank) };
    let shape = shape.ok_or(dlbridge::Error::NullShape { ndim })?;
    let mut builder = Tensor::builder(release).dtype(memory.dtype.dtype()).shape(shape);
    // SAFETY: the caller's duty.
    if let Some(strides) = unsafe { list(memory.strides, rank) } {
        builder = builder.strides(strides);
    }
    let (device, flags) = (memory.device.device(), Flags(memory.flags));
    // SAFETY: the caller's duty; an owner may be dropped on any thread.
    Ok(unsafe { builder.build_raw(memory.data, device, flags) }?)
}

/// # Safety
///
/// `numbers` is null or points to `rank` numbers that do not change for `'a`.
unsafe fn list<'a>(numbers: *const i64, rank: usize) -> Option<&'a [i64]> {
    match (rank, numbers.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: the caller's duty.
        (_, false) => Some(unsafe { slice::from_raw_parts(numbers, rank) }),
    }
}

/// Gives a tensor away as a managed tensor of DLPack 1.x, whose deleter is to be called once, on
/// any thread. The tensor is taken over even on failure.
///
/// # Safety
///
/// `tensor` is null or a tensor that the caller owns and gives up; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_versioned(
    tensor: *mut TensorHandle,
    out: *mut *mut DLManagedTensorVersioned,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's duty.
        let tensor = unsafe { TensorHandle::take(tensor) }?;
        if out.is_null() {
            return Err(NULL_OUT);
        }
        // SAFETY: the caller's duty.
        unsafe { out.write(tensor.into_raw()) };
        Ok(())
    })
}

/// Gives a tensor away as a managed tensor of DLPack before 1.0, which cannot say read-only: such
/// tensors are refused. Otherwise as `dlb_into_versioned`.
///
/// # Safety
///
/// As for `dlb_into_versioned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_legacy(
    tensor: *mut TensorHandle,
    out: *mut *mut DLManagedTensor,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's duty.
        let tensor = unsafe { TensorHandle::take(tensor) }?;
        if out.is_null() {
            return Err(NULL_OUT);
        }
        let raw = tensor.into_raw_legacy()?;
        // SAFETY: the caller's duty.
        unsafe { out.write(raw) };
        Ok(())
    })
}

/// Gives a tensor away as a Python object with `__dlpack__` and `__dlpack_device__`, which every
/// framework's `from_dlpack` takes, any number of times. The caller owns the new reference. The
/// tensor is taken over even on failure. Work that a device has queued on the memory must be done.
///
/// # Safety
///
/// `tensor` is null or a tensor that the caller owns and gives up; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_into_python(
    tensor: *mut TensorHandle,
    out: *mut *mut PyObject,
) -> Status {
    // SAFETY: the caller's duty.
    let tensor = contained(Err(NULL_OUT), || unsafe { TensorHandle::take(tensor) });
    // SAFETY: the caller's duty.
    unsafe { hand_out(out, |python| python::object(python, tensor?)) }
}

/// Gives a tensor away in a capsule: of DLPack 1.x if `versioned` is not 0, else of DLPack before
/// 1.0. Otherwise as `dlb_into_python`.
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
    // SAFETY: the caller's duty.
    let tensor = contained(Err(NULL_OUT), || unsafe { TensorHandle::take(tensor) });
    // SAFETY: the caller's duty.
    unsafe { hand_out(out, |python| python::capsule(python, tensor?, versioned != 0)) }
}

/// Writes a new reference where C wants it.
///
/// # Safety
///
/// `out` is null or can be written.
unsafe fn hand_out(
    out: *mut *mut PyObject,
    make: impl FnOnce(Python) -> Result<python::Object>,
) -> Status {
    guarded(|| {
        if out.is_null() {
            return Err(NULL_OUT);
        }
        let object = make(Python::attached()?)?;
        // SAFETY: the caller's duty.
        unsafe { out.write(object.into_raw()) };
        Ok(())
    })
}
