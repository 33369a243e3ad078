//! Imports the values of an object with `__arrow_c_array__`.
//! Nested, bit-packed and nullable arrays are rejected, since they are not tensors.
//! Invariant: the schema stays in its capsule; the array is moved out of its capsule or stays
//! there. So each is released once.

use std::ffi::{CStr, c_char, c_void};
use std::slice;

use dlbridge::{DType, Device, Tensor};
use pyo3::prelude::*;
use pyo3::sync::critical_section::with_critical_section;
use pyo3::{Borrowed, ffi, intern};

use super::memory::ForeignMemory;
use crate::release::{NeedsInterpreter, Owner};
use crate::{Error, Result};

/// Arrow's `ArrowSchema` (the C data interface, structure definitions), as far as it is read.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// Arrow's `ArrowArray` (the same).
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// An array that was moved out of its capsule.
struct Moved(ArrowArray);

// SAFETY: an array that was moved may be released on any thread (the C data
// interface, memory management; as every consumer does; T4, R9).
unsafe impl Send for Moved {}

impl NeedsInterpreter for Moved {
    /// pyarrow's own function takes the GIL if a Python object owns the memory.
    fn release(mut self, _: Python<'_>) {
        if let Some(release) = self.0.release {
            // SAFETY: moved here alive, and released once (F8).
            unsafe { release(&raw mut self.0) };
        }
    }
}

/// Imports the values of an object's `__arrow_c_array__` (the Arrow PyCapsule interface): numbers
/// without nulls, read-only, since arrays are immutable; `None` if it has none.
pub(super) fn import_arrow(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    let Some(method) = object.getattr_opt(intern!(object.py(), "__arrow_c_array__"))? else {
        return Ok(None);
    };
    let answer = method.call0()?;
    let Ok((schema, array)) = answer.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>() else {
        let found = answer.repr()?;
        let message = format!("__arrow_c_array__: expected a pair of capsules, found {found}");
        return Err(Error::buffer(message));
    };
    let schema_place = content::<ArrowSchema>(&schema, c"arrow_schema")?;
    // Without a global lock, two threads could move the same array.
    with_critical_section(&array, || {
        let place = content::<ArrowArray>(&array, c"arrow_array")?;
        // SAFETY: a capsule of this name holds this struct, which nobody frees while it lives (F4).
        let schema = unsafe { &*schema_place };
        // SAFETY: the same.
        let found = unsafe { &*place };
        // SAFETY: both are valid, or released, by the same word of their producer (F8).
        let memory = unsafe { described(schema, found) }?;
        // SAFETY: the same; it is moved, which clearing `release` tells (the C data interface,
        // moving an array; F8).
        let owner = Owner::new(Moved(unsafe { place.read() }));
        // SAFETY: the same.
        unsafe { (*place).release = None };
        // SAFETY: the values are there until the array is released (SAFETY.md, T3).
        unsafe { memory.tensor(owner) }.map(Some)
    })
}

/// The struct in a capsule of this name.
fn content<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> Result<*mut T> {
    // SAFETY: any object may be asked; no exception is set (F1).
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) } != 1 {
        let found = capsule.repr()?;
        return Err(Error::buffer(format!("capsule: expected one named {name:?}, found {found}")));
    }
    // SAFETY: a capsule of this name (F4).
    Ok(unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()) }.cast())
}

/// Reads an array's schema and struct.
///
/// # Safety
///
/// Both are valid, or released.
unsafe fn described(schema: &ArrowSchema, array: &ArrowArray) -> Result<ForeignMemory> {
    if schema.release.is_none() || array.release.is_none() || schema.format.is_null() {
        return Err(Error::buffer(
            "__arrow_c_array__: expected a live array, found a released one",
        ));
    }
    // SAFETY: a null-terminated string, as long as the schema lives (F8).
    let format = unsafe { CStr::from_ptr(schema.format) };
    let Some(dtype) = dtype_of(format) else {
        let message = format!("format: expected numbers of whole bytes, found {format:?}");
        return Err(Error::buffer(message));
    };
    let ArrowArray { length, null_count, offset, n_buffers, .. } = *array;
    let is_indirect = !schema.dictionary.is_null() || !array.dictionary.is_null();
    if n_buffers != 2 || array.n_children != 0 || is_indirect || array.buffers.is_null() {
        return Err(Error::buffer(format!(
            "n_buffers: expected 2, and neither children nor a dictionary, found {n_buffers}"
        )));
    }
    let (Ok(start), Ok(_)) = (usize::try_from(offset), usize::try_from(length)) else {
        let message = format!("length, offset: expected 0 or more, found {length} and {offset}");
        return Err(Error::buffer(message));
    };
    let itemsize = dtype.itemsize().unwrap_or(1);
    let end = offset.checked_add(length).and_then(|items| items.checked_mul(itemsize as i64));
    if end.is_none() {
        let message = format!(
            "length, offset: expected bytes that can be counted, found {length} and {offset}"
        );
        return Err(Error::buffer(message));
    }
    // SAFETY: two buffers, as counted: the validity bits and the values (F8).
    let [validity, values] = unsafe { array.buffers.cast::<[*const c_void; 2]>().read() };
    // SAFETY: the bits of every value, from `offset` on; null if all are valid (F8).
    let has_nulls = null_count > 0
        || null_count < 0 && unsafe { any_null(validity.cast(), start, length as usize) };
    if has_nulls {
        let message = format!("null_count: expected an array without nulls, found {null_count}");
        return Err(Error::buffer(message));
    }
    // The address stays null where there are no values.
    let skipped = if values.is_null() { 0 } else { start * itemsize };
    let data = values.wrapping_byte_add(skipped).cast_mut();
    let shape = vec![length];
    let device = Device::CPU;
    Ok(ForeignMemory { data, device, dtype, shape, strides: None, read_only: true })
}

/// Looks for a null if the nulls were not counted: least significant bit first, 1 for a value.
///
/// # Safety
///
/// `bits` is null, or has a bit for each of `length` values from `start` on.
unsafe fn any_null(bits: *const u8, start: usize, length: usize) -> bool {
    if bits.is_null() || length == 0 {
        return false;
    }
    let end = start + length;
    // SAFETY: not null, and the rest is the caller's duty.
    let bits = unsafe { slice::from_raw_parts(bits, end.div_ceil(8)) };
    (start..end).any(|index| bits[index / 8] >> (index % 8) & 1 == 0)
}

/// The dtype of a format string (the C data interface, data type description), if it is one of a
/// number of whole bytes.
fn dtype_of(format: &CStr) -> Option<DType> {
    Some(match format.to_bytes() {
        b"c" => DType::I8,
        b"C" => DType::U8,
        b"s" => DType::I16,
        b"S" => DType::U16,
        b"i" => DType::I32,
        b"I" => DType::U32,
        b"l" => DType::I64,
        b"L" => DType::U64,
        b"e" => DType::F16,
        b"f" => DType::F32,
        b"g" => DType::F64,
        _ => return None,
    })
}
