//! From an object with the buffer protocol (PEP 3118) to a tensor over its memory.
//! Lending our own memory belongs to `crate::buffer`.
//! Invariant: the buffer is held by a `memoryview`, which releases it once, when it goes.

use std::ffi::{CStr, c_int};
use std::{ptr, slice};

use dlbridge::{Device, Tensor};
use pyo3::prelude::*;
use pyo3::{Borrowed, ffi};

use super::memory::Memory;
use crate::buffer::abi::{Buffer, FULL_READ_ONLY, PyBuffer_Release, PyObject_GetBuffer};
use crate::buffer::format;
use crate::release::Owner;
use crate::{Error, Result};

/// Takes an object's buffer; `None` if it has none.
pub(super) fn import(object: Borrowed<'_, '_, PyAny>) -> Result<Option<Tensor>> {
    if !has_buffer(object) {
        return Ok(None);
    }
    let (view, memory) = open(object)?;
    // SAFETY: a buffer's memory stays where it is, as it is described, until it is released (PEP
    // 3118); the view releases it (F8, T3).
    unsafe { memory.tensor(Owner::new(view.unbind())) }.map(Some)
}

/// A view that holds an object's buffer, and what the buffer says.
pub(super) fn open<'py>(object: Borrowed<'_, 'py, PyAny>) -> Result<(Bound<'py, PyAny>, Memory)> {
    let py = object.py();
    // SAFETY: any object may be asked (F1).
    let view = unsafe { ffi::PyMemoryView_FromObject(object.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let view = unsafe { Bound::from_owned_ptr_or_err(py, view) }?;
    let memory = Lent::of(&view)?.memory()?;
    Ok((view, memory))
}

/// Whether an object's type has the buffer protocol.
pub(super) fn has_buffer(object: Borrowed<'_, '_, PyAny>) -> bool {
    // Of static types, too, since 3.10; the number of the slot is part of the stable ABI.
    const BF_GETBUFFER: c_int = 1;
    let kind = object.get_type();
    // SAFETY: a type, and a slot that every version has (F1).
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), BF_GETBUFFER) }.is_null()
}

/// A buffer for as long as it is read. The view that it is taken of holds the memory.
struct Lent(Buffer);

impl Lent {
    fn of(view: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut lent = Self(Buffer {
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
        // SAFETY: an object, and a struct to fill in; on failure its `obj` stays null (F1, F5).
        let status = unsafe { PyObject_GetBuffer(view.as_ptr(), &raw mut lent.0, FULL_READ_ONLY) };
        if status == 0 { Ok(lent) } else { Err(PyErr::fetch(view.py())) }
    }

    /// # Errors
    ///
    /// A format that is not one number, sub-offsets, or a length that is not that of the shape.
    fn memory(&self) -> Result<Memory> {
        let Buffer { buf, len, ndim, readonly, .. } = self.0;
        if !self.0.suboffsets.is_null() {
            let message = "suboffsets: found some, wanted memory without pointers in it";
            return Err(Error::buffer(message));
        }
        let itemsize = format::size_of_item(self.0.itemsize)?;
        let dtype = format::dtype_of(&self.format(), itemsize)?;
        let shape = self.list(self.0.shape).unwrap_or_else(|| match ndim {
            0 => Vec::new(),
            _ => vec![len as i64 / (itemsize as i64).max(1)],
        });
        let strides = self.list(self.0.strides);
        let items = shape.iter().try_fold(itemsize as i64, |size, &n| size.checked_mul(n));
        if items != Some(len as i64) {
            let message = format!("len: found {len} bytes, wanted those of shape {shape:?}");
            return Err(Error::buffer(message));
        }
        let read_only = readonly != 0;
        Ok(Memory { data: buf, device: Device::CPU, dtype, shape, strides, read_only })
    }

    /// No format means bytes.
    fn format(&self) -> String {
        if self.0.format.is_null() {
            return "B".to_owned();
        }
        // SAFETY: a null-terminated string, as long as the buffer is held (F8).
        let format = unsafe { CStr::from_ptr(self.0.format) };
        format.to_string_lossy().into_owned()
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

impl Drop for Lent {
    fn drop(&mut self) {
        // SAFETY: filled in by `of`, attached still, and released once (F1, F8).
        unsafe { PyBuffer_Release(&raw mut self.0) };
    }
}
