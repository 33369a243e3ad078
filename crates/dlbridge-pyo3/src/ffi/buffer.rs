//! The buffer protocol (PEP 3118): its C struct, and the functions that export a class's host memory.
//! Importing a buffer belongs to `acquired`, installing the functions into a class to `class`.
//! Invariants: the struct is that of CPython's `pybuffer.h`, the same in every version. A request that
//! cannot describe the tensor's layout fails with a `BufferError`. A buffer owns a handle to its
//! memory until it is released.
//!
//! The limited API has these declarations since Python 3.11 only, so they are made here, as in every
//! CPython since 3.0.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use dlbridge::{Tensor, layout};
use pyo3::ffi::{Py_ssize_t, PyObject};
use pyo3::prelude::*;

use super::callbacks::{Publish, dropped, with_object};
use crate::dtypes::buffer::format_of;
use crate::release::ObjectTensor;
use crate::{Error, Result};

/// CPython's `Py_buffer`.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) buf: *mut c_void,
    /// A reference that this struct owns.
    pub(crate) obj: *mut PyObject,
    pub(crate) len: Py_ssize_t,
    pub(crate) itemsize: Py_ssize_t,
    pub(crate) readonly: c_int,
    pub(crate) ndim: c_int,
    pub(crate) format: *mut c_char,
    pub(crate) shape: *mut Py_ssize_t,
    pub(crate) strides: *mut Py_ssize_t,
    pub(crate) suboffsets: *mut Py_ssize_t,
    /// The exporter's own.
    pub(crate) internal: *mut c_void,
}

const WRITABLE: c_int = 0x1;
const FORMAT: c_int = 0x4;
const ND: c_int = 0x8;
const STRIDES: c_int = 0x10 | ND;
const C_CONTIGUOUS: c_int = 0x20 | STRIDES;
const F_CONTIGUOUS: c_int = 0x40 | STRIDES;
const ANY_CONTIGUOUS: c_int = 0x80 | STRIDES;
/// A request for a read-only buffer of any format and strides, and with sub-offsets.
#[cfg(not(windows))]
pub(crate) const FULL_READ_ONLY: c_int = 0x100 | STRIDES | FORMAT;

/// `bf_getbuffer`.
pub(super) type GetBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer, c_int) -> c_int;
/// `bf_releasebuffer`.
pub(super) type ReleaseBuffer = unsafe extern "C" fn(*mut PyObject, *mut Buffer);

// Part of the limited API since 3.11 only, but exported by every CPython since 3.0; not by the
// version-independent library of Windows.
#[cfg(not(windows))]
unsafe extern "C" {
    pub(crate) fn PyObject_GetBuffer(
        object: *mut PyObject,
        view: *mut Buffer,
        flags: c_int,
    ) -> c_int;
    pub(crate) fn PyBuffer_Release(view: *mut Buffer);
}

/// The address of an empty tensor without one: some consumers reject null.
static NOWHERE: u64 = 0;

/// The flags of a request (PEP 3118, `PyBUF_*`).
#[derive(Clone, Copy)]
pub(crate) struct BufferRequest(pub(crate) c_int);

impl BufferRequest {
    fn asks(self, flags: c_int) -> bool {
        self.0 & flags == flags
    }

    /// Whether a tensor can be exported for this request.
    pub(crate) fn check(self, tensor: &Tensor) -> Result<()> {
        let (dtype, device) = (tensor.dtype(), tensor.device());
        let refused = |found: String, expected: &str| {
            Err(Error::buffer(format!("buffer: expected {expected}, found {found}")))
        };
        if !device.is_host_accessible() {
            return refused(format!("memory on {device}"), "host memory");
        }
        if format_of(dtype).is_none() {
            return refused(
                format!("{dtype}; x.numpy() has its values"),
                "elements that have a struct format",
            );
        }
        if self.asks(WRITABLE) && tensor.is_read_only() {
            return refused("read-only memory".to_owned(), "writable memory");
        }
        // Without a shape, a buffer is its bytes, which a format other than "B" contradicts.
        if self.asks(FORMAT) && !self.asks(ND) {
            return refused(
                "a request for a format".to_owned(),
                "a request for a format and a shape",
            );
        }
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let is_c = tensor.is_contiguous();
        let is_f = layout::is_column_major(shape, strides);
        let expected = if self.asks(C_CONTIGUOUS) && !is_c {
            "row-major contiguous memory"
        } else if self.asks(F_CONTIGUOUS) && !is_f {
            "column-major contiguous memory"
        } else if self.asks(ANY_CONTIGUOUS) && !is_c && !is_f {
            "contiguous memory"
        } else if !self.asks(STRIDES) && !is_c {
            "row-major contiguous memory, or a request for strides"
        } else {
            return Ok(());
        };
        refused(format!("strides {strides:?} for shape {shape:?}"), expected)
    }
}

/// The shape, then the strides in bytes: a buffer points to both.
fn extents(tensor: &Tensor, itemsize: i64) -> Result<Box<[Py_ssize_t]>> {
    let strides = tensor.strides().iter().map(|step| step.checked_mul(itemsize));
    let numbers = tensor.shape().iter().map(|&extent| Some(extent)).chain(strides);
    let numbers: Option<Box<[_]>> =
        numbers.map(|number| number.and_then(|number| Py_ssize_t::try_from(number).ok())).collect();
    numbers.ok_or_else(|| {
        Error::buffer("strides: expected numbers of bytes that fit, found larger ones")
    })
}

/// What a buffer owns.
struct Owned {
    _tensor: ObjectTensor,
    numbers: Box<[Py_ssize_t]>,
}

/// Fills in a buffer.
fn fill<T: Publish>(object: &Bound<'_, T>, request: BufferRequest) -> Result<Buffer> {
    let tensor = T::on_host(object)?;
    request.check(&tensor)?;
    let tensor = tensor.into_shared();
    let itemsize = tensor.dtype().itemsize().unwrap_or(1);
    let rank = tensor.rank();
    let mut owned = Box::new(Owned {
        numbers: extents(&tensor, itemsize as i64)?,
        _tensor: ObjectTensor::new(tensor.clone()),
    });
    let numbers = owned.numbers.as_mut_ptr();
    let data = match tensor.data_ptr() {
        data if data.is_null() => (&raw const NOWHERE).cast_mut().cast(),
        data => data,
    };
    let format = format_of(tensor.dtype()).filter(|_| request.asks(FORMAT));
    Ok(Buffer {
        buf: data,
        obj: object.clone().into_any().into_ptr(),
        len: tensor.nbytes() as Py_ssize_t,
        itemsize: itemsize as Py_ssize_t,
        readonly: c_int::from(tensor.is_read_only()),
        // Without a shape, a buffer has one axis: its bytes.
        ndim: if request.asks(ND) { rank as c_int } else { 1 },
        format: format.map_or(ptr::null_mut(), |format| format.as_ptr().cast_mut()),
        shape: if request.asks(ND) { numbers } else { ptr::null_mut() },
        strides: if request.asks(STRIDES) { numbers.wrapping_add(rank) } else { ptr::null_mut() },
        suboffsets: ptr::null_mut(),
        internal: Box::into_raw(owned).cast(),
    })
}

/// `bf_getbuffer` of the class.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `view` a place to fill in.
pub(crate) unsafe extern "C" fn get<T: Publish>(
    object: *mut PyObject,
    view: *mut Buffer,
    flags: c_int,
) -> c_int {
    let Some(view) = NonNull::new(view) else {
        let refuse = |_: &Bound<'_, T>| {
            Err::<(), _>(Error::buffer(
                "buffer: expected a place to write it to, found a null pointer",
            ))
        };
        // SAFETY: the caller's duty.
        let _refused = unsafe { with_object(object, refuse) };
        return -1;
    };
    // SAFETY: the caller's duty.
    match unsafe { with_object(object, |object: &Bound<'_, T>| fill(object, BufferRequest(flags))) }
    {
        Some(buffer) => {
            // SAFETY: the caller's duty; nothing there needs to be dropped.
            unsafe { view.write(buffer) };
            0
        }
        None => {
            // PEP 3118: on failure, `obj` is null.
            // SAFETY: the caller's duty.
            unsafe { (*view.as_ptr()).obj = ptr::null_mut() };
            -1
        }
    }
}

/// `bf_releasebuffer` of the class. Python itself drops the reference.
///
/// # Safety
///
/// Python's: attached, `view` was filled in by [`get`], and is released once.
pub(crate) unsafe extern "C" fn release(_: *mut PyObject, view: *mut Buffer) {
    // SAFETY: the caller's duty; the field is read once.
    let owned = unsafe { std::mem::replace(&mut (*view).internal, ptr::null_mut()) };
    if !owned.is_null() {
        // SAFETY: a box that `fill` made (R7).
        dropped(unsafe { Box::from_raw(owned.cast::<Owned>()) });
    }
}
