//! Buffers of the buffer protocol (PEP 3118) that are acquired, and the tensors over them.
//! What the classes of this library export belongs to `buffer`.
//! Invariant: a tensor owns the acquired buffer itself, which no Python code can find and release, and which is released
//! once.

use std::ffi::{CStr, c_int};
use std::hint::black_box;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ptr::{self, NonNull};
use std::slice;

use dlbridge::ffi::{KeepAlive, Unwinds, from_owner_within, room, stopping};
use dlbridge::sys::DLTensor;
use dlbridge::{DType, Device, Flags, Tensor};
use pyo3::ffi::{self, Py_buffer, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use pyo3::{Borrowed, intern};

use super::buffer::is_kept;
use super::memory::ForeignMemory;
use super::numpy::KeepOf;
use crate::dtypes::buffer::{dtype_of, size_of_item};
use crate::release::{NeedsInterpreter, Owner};
use crate::{Error, Result};

/// A request for a read-only buffer of any format and strides, and with sub-offsets.
const FULL_READ_ONLY: c_int = ffi::PyBUF_FULL_RO;

/// Imports an object's buffer. `keep_of` keeps the memory of an object of this library's class, of which it may be a view.
pub(crate) fn import_buffer(object: Borrowed<'_, '_, PyAny>, keep_of: KeepOf) -> Result<Tensor> {
    let buffer = Acquired::new(object)?;
    if is_kept(buffer.fields()) {
        if let Some((memory, keep)) = buffer.export_behind(object, keep_of)? {
            // SAFETY: the memory of that object, which `keep` keeps as long as the object would (T3).
            return unsafe { memory.tensor(keep) };
        }
    }
    if let Some((len, dtype)) = buffer.line()? {
        let Py_buffer { buf: data, readonly, .. } = *buffer.fields();
        let flags = if readonly != 0 { Flags::READ_ONLY } else { Flags::NONE };
        let (mut shape, mut strides) = ([len], [1]);
        let (shape, strides) = (shape.as_mut_ptr(), strides.as_mut_ptr());
        let (device, dtype, ndim, byte_offset) = (Device::CPU.into(), dtype.into(), 1, 0);
        let tensor = DLTensor { data, device, ndim, dtype, shape, strides, byte_offset };
        // SAFETY: one number each for shape and strides, which live during the call; room for a
        // header with one axis (R7); as below (F8, T3).
        let tensor =
            unsafe { from_owner_within(buffer.header(), Owner::new(buffer), &tensor, flags) };
        return Ok(tensor?);
    }
    let memory = buffer.memory()?;
    // SAFETY: a buffer's memory stays where it is, as it is described, until it is released (PEP
    // 3118), which the owner does (F8, T3).
    unsafe { memory.tensor(Owner::new(buffer)) }
}

/// As [`import_buffer`], for an array of JAX.
pub(crate) fn import_jax(object: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    // SAFETY: JAX exports its arrays by the legacy ABI, and imports them from it (T8).
    Ok(unsafe { dlbridge::ffi::assume_legacy(import_buffer(object, |_, _| None)?) })
}

/// An object's buffer and its description.
pub(crate) fn open(object: Borrowed<'_, '_, PyAny>) -> Result<(Acquired, ForeignMemory)> {
    let buffer = Acquired::new(object)?;
    let memory = buffer.memory()?;
    Ok((buffer, memory))
}

/// An acquired buffer: its exporter counts it, and a `bytearray` with one is not resized. Dropped
/// on threads that are attached only: anywhere else an `Owner` keeps it.
pub(crate) struct Acquired(NonNull<Opened>);

/// A buffer, which does not move, since exporters may point into it, and room for the header of a
/// tensor of one axis.
#[repr(C)]
struct Opened {
    buffer: Py_buffer,
    header: MaybeUninit<[u64; room::<Owner<Acquired>>(1).div_ceil(8)]>,
}

// SAFETY: plain numbers and pointers, which are used on a thread that is attached (F8, R9).
unsafe impl Send for Acquired {}
// SAFETY: the same; what is read through a reference is not written (R9).
unsafe impl Sync for Acquired {}

impl NeedsInterpreter for Acquired {
    fn release(self, _: Python<'_>) {
        drop(self);
    }
}

impl Acquired {
    fn new(object: Borrowed<'_, '_, PyAny>) -> Result<Self> {
        let buffer = Py_buffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            // Not all zeros: the compiler would allocate by `calloc`, a tenth of the import more.
            readonly: 1,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        };
        let opened = Box::into_raw(Box::new(Opened { buffer, header: MaybeUninit::uninit() }));
        // The compiler would see a function that is declared as one that does not unwind.
        let get: unsafe extern "C" fn(*mut PyObject, *mut Py_buffer, c_int) -> c_int =
            black_box(ffi::PyObject_GetBuffer);
        let view = opened.cast::<Py_buffer>();
        // SAFETY: an object, and a struct to fill in (F1, F5).
        let status = stopping(|| unsafe { get.unwinding()(object.as_ptr(), view, FULL_READ_ONLY) });
        // SAFETY: a box is not null (R7).
        let acquired = Self(unsafe { NonNull::new_unchecked(opened) });
        if status == 0 {
            return Ok(acquired);
        }
        acquired.free();
        Err(PyErr::fetch(object.py()).into())
    }

    /// Frees the struct.
    fn free(self) {
        let opened = ManuallyDrop::new(self).0.as_ptr();
        // SAFETY: the box that `new` made, whose last owner this is (R7).
        drop(unsafe { Box::from_raw(opened) });
    }

    /// The struct that the exporter filled in.
    #[inline(always)]
    fn fields(&self) -> &Py_buffer {
        // SAFETY: alive as long as this, and not written (R7).
        unsafe { &(*self.0.as_ptr()).buffer }
    }

    /// The object that the exporter named, to which the buffer has a reference.
    pub(super) fn object(&self) -> Option<&Py<PyAny>> {
        let object = (&raw const self.fields().obj).cast::<Option<Py<PyAny>>>();
        // SAFETY: a reference, or null (F8), as `Option<Py<PyAny>>` has it; not written (R7).
        unsafe { &*object }.as_ref()
    }

    /// Keeps the memory of the object whose memoryview this is a buffer of, without both, so that a tensor that crosses
    /// repeatedly does not grow a chain.
    #[cold]
    fn export_behind(
        &self,
        view: Borrowed<'_, '_, PyAny>,
        keep_of: KeepOf,
    ) -> Result<Option<(ForeignMemory, KeepAlive)>> {
        if !view.is_exact_instance_of::<PyMemoryView>() {
            return Ok(None);
        }
        let exporter = view.getattr(intern!(view.py(), "obj"))?;
        let memory = self.memory()?;
        let first = (self.fields().len != 0).then(|| memory.data().addr());
        Ok(keep_of(exporter.as_borrowed(), first).map(|keep| (memory, keep)))
    }

    /// The room for a header.
    #[inline(always)]
    fn header(&self) -> NonNull<u8> {
        // SAFETY: inside of the box (R7).
        unsafe { self.0.byte_add(offset_of!(Opened, header)) }.cast()
    }

    /// The length and dtype of a buffer of one axis without gaps, which is most of them.
    ///
    /// # Errors
    ///
    /// A format that is not one number.
    fn line(&self) -> Result<Option<(i64, DType)>> {
        let Py_buffer { len, itemsize, ndim, shape, strides, suboffsets, .. } = *self.fields();
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
        let dtype = dtype_of(self.format(), size_of_item(itemsize)?)?;
        Ok(Some((extent as i64, dtype)))
    }

    /// # Errors
    ///
    /// A format that is not one number, sub-offsets, or a length that is not that of the shape.
    fn memory(&self) -> Result<ForeignMemory> {
        let Py_buffer { buf, len, ndim, readonly, .. } = *self.fields();
        if !self.fields().suboffsets.is_null() {
            let message = "suboffsets: expected memory without pointers, found some";
            return Err(Error::buffer(message));
        }
        let itemsize = size_of_item(self.fields().itemsize)?;
        let dtype = dtype_of(self.format(), itemsize)?;
        let shape = self.list(self.fields().shape).unwrap_or_else(|| match ndim {
            0 => Vec::new(),
            _ => vec![len as i64 / (itemsize as i64).max(1)],
        });
        let strides = self.list(self.fields().strides);
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
        if self.fields().format.is_null() {
            return b"B";
        }
        // SAFETY: a null-terminated string, as long as the buffer is held (F8).
        unsafe { CStr::from_ptr(self.fields().format) }.to_bytes()
    }

    fn list(&self, numbers: *const Py_ssize_t) -> Option<Vec<i64>> {
        let ndim = usize::try_from(self.fields().ndim).unwrap_or(0);
        if numbers.is_null() || ndim == 0 {
            return (ndim == 0).then(Vec::new);
        }
        // SAFETY: not null, so `ndim` numbers, as long as the buffer is held (F8).
        let numbers = unsafe { slice::from_raw_parts(numbers, ndim) };
        Some(numbers.iter().map(|&number| number as i64).collect())
    }
}

impl Drop for Acquired {
    fn drop(&mut self) {
        let release: unsafe extern "C" fn(*mut Py_buffer) = black_box(ffi::PyBuffer_Release);
        let view = self.0.as_ptr().cast::<Py_buffer>();
        // SAFETY: filled in by `new`, attached, and released once (F1, F8).
        stopping(|| unsafe { release.unwinding()(view) });
        Self(self.0).free();
    }
}
