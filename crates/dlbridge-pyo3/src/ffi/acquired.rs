//! Acquires the buffers of objects (PEP 3118).
//! Exporting our own memory belongs to `buffer`.
//! Invariant: the tensor owns the acquired buffer itself, which no Python code can find and
//! release, and which is released once.

use std::ffi::{CStr, c_int};
use std::{ptr, slice};

use dlbridge::{DType, Device, Flags, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{Borrowed, ffi};

use super::buffer::{Buffer, FULL_READ_ONLY, PyBuffer_Release, PyObject_GetBuffer};
use super::memory::ForeignMemory;
use crate::dtypes::buffer;
use crate::release::{NeedsInterpreter, Owner};
use crate::{Error, Result};

/// Imports an object's buffer; `None` if it has none.
pub(crate) fn import_buffer(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    if !has_buffer(&object.get_type()) {
        return Ok(None);
    }
    let buffer = Acquired::new(object)?;
    if let Some((len, dtype)) = buffer.line()? {
        let Buffer { buf, readonly, .. } = *buffer.0;
        let flags = if readonly != 0 { Flags::READ_ONLY } else { Flags::NONE };
        let builder = Tensor::builder(Owner::new(buffer)).dtype(dtype).shape(&[len]);
        // SAFETY: as below (F8, T3).
        return Ok(Some(unsafe { builder.build_raw(buf, Device::CPU, flags) }?));
    }
    let memory = buffer.memory()?;
    // SAFETY: a buffer's memory stays where it is, as it is described, until it is released (PEP
    // 3118), which the owner does (F8, T3).
    unsafe { memory.tensor(Owner::new(buffer)) }.map(Some)
}

/// An object's buffer and its description.
pub(crate) fn open(object: Borrowed<'_, '_, PyAny>) -> Result<(Acquired, ForeignMemory)> {
    let buffer = Acquired::new(object)?;
    let memory = buffer.memory()?;
    Ok((buffer, memory))
}

/// Whether an object's type has the buffer protocol.
pub(crate) fn has_buffer(kind: &Bound<'_, PyType>) -> bool {
    // Of static types, too, since 3.10; the number of the slot is part of the stable ABI.
    const BF_GETBUFFER: c_int = 1;
    // SAFETY: a type, and a slot that every version has (F1).
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), BF_GETBUFFER) }.is_null()
}

/// An acquired buffer: its exporter counts it, and a `bytearray` with one is not resized.
/// Boxed, since exporters may point into it. Dropped on threads that are attached only: anywhere
/// else an `Owner` keeps it.
pub(crate) struct Acquired(Box<Buffer>);

// SAFETY: plain numbers and pointers, which are used on a thread that is attached (F8, R9).
unsafe impl Send for Acquired {}

impl NeedsInterpreter for Acquired {
    fn release(self, _: Python<'_>) {
        drop(self);
    }
}

impl Acquired {
    fn new(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let mut buffer = Box::new(Buffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: an object, and a struct to fill in (F1, F5).
        let status =
            unsafe { PyObject_GetBuffer(object.as_ptr(), &raw mut *buffer, FULL_READ_ONLY) };
        if status == 0 { Ok(Self(buffer)) } else { Err(PyErr::fetch(object.py())) }
    }

    /// The length and dtype of a buffer of one axis without gaps, which is most of them.
    ///
    /// # Errors
    ///
    /// A format that is not one number.
    fn line(&self) -> Result<Option<(i64, DType)>> {
        let Buffer { len, itemsize, ndim, shape, strides, suboffsets, .. } = *self.0;
        if ndim != 1 || itemsize <= 0 || !suboffsets.is_null() || shape.is_null() {
            return Ok(None);
        }
        // SAFETY: not null, so one number, as long as the buffer is held (F8).
        let extent = unsafe { *shape };
        // SAFETY: the same.
        let has_gaps = !strides.is_null() && unsafe { *strides } != itemsize;
        if has_gaps || extent.checked_mul(itemsize) != Some(len) {
            return Ok(None);
        }
        let dtype = buffer::dtype_of(self.format(), buffer::size_of_item(itemsize)?)?;
        Ok(Some((extent as i64, dtype)))
    }

    /// # Errors
    ///
    /// A format that is not one number, sub-offsets, or a length that is not that of the shape.
    fn memory(&self) -> Result<ForeignMemory> {
        let Buffer { buf, len, ndim, readonly, .. } = *self.0;
        if !self.0.suboffsets.is_null() {
            let message = "suboffsets: expected memory without pointers, found some";
            return Err(Error::buffer(message));
        }
        let itemsize = buffer::size_of_item(self.0.itemsize)?;
        let dtype = buffer::dtype_of(self.format(), itemsize)?;
        let shape = self.list(self.0.shape).unwrap_or_else(|| match ndim {
            0 => Vec::new(),
            _ => vec![len as i64 / (itemsize as i64).max(1)],
        });
        let strides = self.list(self.0.strides);
        let items = shape.iter().try_fold(itemsize as i64, |size, &n| size.checked_mul(n));
        if items != Some(len as i64) {
            let message = format!("len: expected the bytes of shape {shape:?}, found {len}");
            return Err(Error::buffer(message));
        }
        let read_only = readonly != 0;
        Ok(ForeignMemory { data: buf, device: Device::CPU, dtype, shape, strides, read_only })
    }

    /// No format means bytes.
    fn format(&self) -> &[u8] {
        if self.0.format.is_null() {
            return b"B";
        }
        // SAFETY: a null-terminated string, as long as the buffer is held (F8).
        unsafe { CStr::from_ptr(self.0.format) }.to_bytes()
    }

    fn list(&self, numbers: *const ffi::Py_ssize_t) -> Option<Vec<i64>> {
        let rank = usize::try_from(self.0.ndim).unwrap_or(0);
        if numbers.is_null() || rank == 0 {
            return (rank == 0).then(Vec::new);
        }
        // SAFETY: not null, so `ndim` numbers, as long as the buffer is held (F8).
        let numbers = unsafe { slice::from_raw_parts(numbers, rank) };
        Some(numbers.iter().map(|&number| number as i64).collect())
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        // SAFETY: filled in by `new`, attached, and released once (F1, F8).
        unsafe { PyBuffer_Release(&raw mut *self.0) };
    }
}
