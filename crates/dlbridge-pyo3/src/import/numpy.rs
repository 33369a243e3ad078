//! Imports a NumPy array from the fields of its C struct.
//! Other arrays (subclasses, other byte orders, odd strides, dtypes without a DLPack code) are
//! imported by `__dlpack__`, for its error message.
//! Invariant: only exact `numpy.ndarray` objects are read, of a NumPy whose C API version has this
//! layout.

use std::ffi::{c_char, c_int, c_void};

use dlbridge::ffi::KeepAlive;
use dlbridge::sys::DLTensor;
use dlbridge::{Flags, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

use super::capsule;
use super::descriptor::{Described, DescriptorSpace};
use crate::Result;
use crate::dtypes::numpy::DTYPES;
use crate::ffi::head::Head;
use crate::ffi::numpy::WRITEABLE;
use crate::release::{self, Owner};

/// `PyArrayObject_fields` behind its head, the same in every NumPy that `ffi::numpy::Api` knows.
#[repr(C)]
struct ArrayFields {
    data: *mut c_void,
    rank: c_int,
    extents: *mut isize,
    /// In bytes.
    strides: *mut isize,
    base: *mut ffi::PyObject,
    descriptor: *mut ffi::PyObject,
    flags: c_int,
}

/// The first fields of `PyArray_Descr` behind its head, in the same order in each such NumPy.
#[repr(C)]
struct DescrFields {
    scalar_type: *mut ffi::PyTypeObject,
    kind: c_char,
    letter: c_char,
    byte_order: c_char,
    old_flags: c_char,
    number: c_int,
}

/// The fields of an object of NumPy.
///
/// # Safety
///
/// A type passed `ffi::numpy::is_array_type`, which measures the head.
#[inline(always)]
unsafe fn fields<T>(object: *mut ffi::PyObject) -> *mut T {
    // SAFETY: the caller's duty.
    unsafe { Head::measured() }.fields(object)
}

/// Imports an array; `None` if `__dlpack__` must be called.
///
/// # Safety
///
/// The object's exact type passed `ffi::numpy::is_array_type`.
#[inline]
pub(crate) unsafe fn import_array(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let mut space = DescriptorSpace::empty();
    // From here on no Python code runs that could change the array.
    release::prepare();
    // SAFETY: the caller's duty.
    let Some(flags) = (unsafe { write(object, &mut space) }) else { return Ok(None) };
    // SAFETY: described just now (F9).
    let descriptor = unsafe { space.descriptor.get() };
    // SAFETY: the caller's duty.
    if let Some(keep) = unsafe { export_behind(object) } {
        // SAFETY: the array has no memory of its own, and `keep` keeps what its base does (T3).
        return Ok(Some(unsafe { Tensor::from_owner_raw(keep, descriptor, flags) }?));
    }
    let owner = Owner::new(object.to_owned().unbind());
    // SAFETY: the array, which `owner` keeps, keeps the memory that it describes (T3), as long as no
    // Python code moves it (T12): `resize` refuses while there are other references, but not with
    // `refcheck=False`, and `__setstate__` does not look at all.
    let tensor = unsafe { Tensor::from_owner_raw(owner, descriptor, flags) }?;
    Ok(Some(tensor))
}

/// Keeps the memory of an array over an export of this library, without the array, so that a tensor
/// that is exchanged with NumPy repeatedly does not grow a chain.
///
/// # Safety
///
/// As for [`import_array`].
#[inline]
unsafe fn export_behind(object: Borrowed<'_, '_, PyAny>) -> Option<KeepAlive> {
    // SAFETY: the caller's duty.
    let array: *mut ArrayFields = unsafe { fields(object.as_ptr()) };
    // SAFETY: an array of this layout (the caller's duty), whose fields nobody changes now (T12).
    let base = unsafe { (*array).base };
    // SAFETY: the same.
    if base.is_null() { None } else { unsafe { export_in(object, base) } }
}

/// # Safety
///
/// As for [`import_array`], and `base` is the array's base.
#[cold]
unsafe fn export_in(
    object: Borrowed<'_, '_, PyAny>,
    mut base: *mut ffi::PyObject,
) -> Option<KeepAlive> {
    // SAFETY: an object (F1).
    let of_base = unsafe { ffi::Py_TYPE(base) };
    // SAFETY: the same.
    if of_base == unsafe { ffi::Py_TYPE(object.as_ptr()) } {
        // A view of an array: NumPy makes views of views views of the first array.
        // SAFETY: the caller's duty: of the same type.
        let first: *mut ArrayFields = unsafe { fields(base) };
        // SAFETY: of the same type, so of this layout (F5).
        base = unsafe { (*first).base };
    }
    // SAFETY: the array keeps its base, and the base its own (T12); null if there is none.
    let base = unsafe { Borrowed::from_ptr_or_opt(object.py(), base) }?;
    capsule::keep(base)
}

/// Describes the memory of an array in `space`; `None` if `__dlpack__` must be called.
///
/// # Safety
///
/// As for [`import_array`].
#[inline(always)]
pub(super) unsafe fn describe_array<'p>(
    object: Borrowed<'_, '_, PyAny>,
    space: &'p mut DescriptorSpace,
) -> Option<Described<'p>> {
    // SAFETY: the caller's duty.
    let flags = unsafe { write(object, space) }?;
    space.described(flags)
}

/// Writes the descriptor of an array, and returns the flags of its memory.
///
/// # Safety
///
/// As for [`import_array`].
#[inline(always)]
unsafe fn write(object: Borrowed<'_, '_, PyAny>, space: &mut DescriptorSpace) -> Option<Flags> {
    // SAFETY: the caller's duty.
    let array: *mut ArrayFields = unsafe { fields(object.as_ptr()) };
    // SAFETY: an array of this layout (the caller's duty), whose fields nobody changes now (T12).
    let ArrayFields { data, rank, extents, strides: in_bytes, descriptor, flags, .. } =
        unsafe { std::ptr::read(array) };
    // SAFETY: the caller's duty.
    let descriptor = unsafe { fields(descriptor) };
    // SAFETY: every array has a descriptor (F5).
    let DescrFields { number, byte_order, .. } = unsafe { std::ptr::read(descriptor) };
    let dtype = *DTYPES.get(usize::try_from(number).ok()?)?;
    let foreign = if cfg!(target_endian = "little") { b'>' } else { b'<' };
    if dtype.bits == 0 || byte_order as u8 == foreign {
        return None;
    }
    let itemsize = i64::from(dtype.bits / 8);
    let shift = itemsize.trailing_zeros();
    for (axis, stride) in space.strides.iter_mut().enumerate().take(usize::try_from(rank).ok()?) {
        // SAFETY: an array has as many strides as axes (F5).
        let bytes = unsafe { in_bytes.add(axis) };
        // SAFETY: the same.
        let bytes = unsafe { bytes.read() } as i64;
        if bytes & (itemsize - 1) != 0 {
            return None;
        }
        stride.write(bytes >> shift);
    }
    let device = dlbridge::Device::CPU.into();
    let (shape, strides) = (extents.cast(), space.strides.as_mut_ptr().cast());
    let (ndim, byte_offset) = (rank, 0);
    space.descriptor.write(DLTensor { data, device, ndim, dtype, shape, strides, byte_offset });
    Some(if flags & WRITEABLE == 0 { Flags::READ_ONLY } else { Flags::NONE })
}
