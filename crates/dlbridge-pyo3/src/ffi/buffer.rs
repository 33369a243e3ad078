//! The buffer protocol (PEP 3118): the functions that export a class's host memory.
//! Installing them into a class belongs to `class`, importing buffers to `acquired`.
//! Invariants: a request that cannot describe the tensor's layout fails with a `BufferError`. A buffer points to what a
//! `dlbridge.Tensor` keeps, so that no function releases it.

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use dlbridge::{Tensor, layout};
use pyo3::ffi::{self, Py_buffer, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::borrow::give_shared;
use super::callbacks::{Publish, with_object};
use crate::dtypes::buffer::format_of;
use crate::{Error, Result};

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
        if self.asks(ffi::PyBUF_WRITABLE) && tensor.is_read_only() {
            return refused("read-only memory".to_owned(), "writable memory");
        }
        // Without a shape, a buffer is its bytes, which a format other than "B" contradicts.
        if self.asks(ffi::PyBUF_FORMAT) && !self.asks(ffi::PyBUF_ND) {
            return refused(
                "a request for a format".to_owned(),
                "a request for a format and a shape",
            );
        }
        let (shape, strides) = (tensor.shape(), tensor.strides());
        let (is_c, is_f) = (|| tensor.is_contiguous(), || layout::is_column_major(shape, strides));
        let expected = if self.asks(ffi::PyBUF_C_CONTIGUOUS) && !is_c() {
            "row-major contiguous memory"
        } else if self.asks(ffi::PyBUF_F_CONTIGUOUS) && !is_f() {
            "column-major contiguous memory"
        } else if self.asks(ffi::PyBUF_ANY_CONTIGUOUS) && !is_c() && !is_f() {
            "contiguous memory"
        } else if !self.asks(ffi::PyBUF_STRIDES) && !is_c() {
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

/// What the buffers of one object say, made for the first of them.
#[derive(Debug, Default)]
pub(crate) struct Extents(OnceLock<Box<Description>>);

/// What buffers say of a tensor.
#[derive(Debug)]
struct Description {
    numbers: Box<[Py_ssize_t]>,
    len: Py_ssize_t,
    itemsize: Py_ssize_t,
    format: Option<&'static CStr>,
    is_read_only: bool,
}

impl Description {
    fn of(tensor: &Tensor) -> Result<Self> {
        let itemsize = tensor.dtype().itemsize().unwrap_or(1);
        Ok(Self {
            numbers: extents(tensor, itemsize as i64)?,
            len: tensor.nbytes() as Py_ssize_t,
            itemsize: itemsize as Py_ssize_t,
            format: format_of(tensor.dtype()),
            is_read_only: tensor.is_read_only(),
        })
    }

    /// Whether a tensor that had a buffer certainly has one for this request, which most consumers make: for any strides.
    #[inline]
    fn permits(&self, request: BufferRequest) -> bool {
        const LAYOUTS: c_int =
            ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_F_CONTIGUOUS | ffi::PyBUF_ANY_CONTIGUOUS;
        request.0 & LAYOUTS == ffi::PyBUF_STRIDES
            && !(self.is_read_only && request.asks(ffi::PyBUF_WRITABLE))
    }
}

/// A class whose objects keep all that their buffers point to.
pub(crate) trait KeepsExtents: Publish {
    /// The tensor of an object, which is never replaced, once the host may read it, and the numbers that
    /// the object keeps.
    fn parts<'a>(object: &'a Bound<'_, Self>) -> Result<(&'a Tensor, &'a Extents)>;
}

/// Fills in a buffer of an object that keeps all that it points to, so that it need not be released.
fn fill<T: KeepsExtents>(object: &Bound<'_, T>, request: BufferRequest) -> Result<Py_buffer> {
    let (tensor, kept) = T::parts(object)?;
    let description = match kept.0.get() {
        Some(description) if description.permits(request) => description,
        _ => checked(tensor, kept, request)?,
    };
    Ok(described(object, tensor, description, request))
}

/// The description of a tensor that can be exported for a request.
#[cold]
fn checked<'a>(
    tensor: &Tensor,
    Extents(kept): &'a Extents,
    request: BufferRequest,
) -> Result<&'a Description> {
    request.check(tensor)?;
    if let Some(description) = kept.get() {
        return Ok(description);
    }
    let description = Box::new(Description::of(tensor)?);
    Ok(kept.get_or_init(|| description))
}

/// What a buffer of this file has in `internal` if it owns nothing; a memoryview copies it.
static NOTHING: u8 = 0;

/// Whether a buffer, or the one below a memoryview, is of an object that keeps all that it points to.
#[inline(always)]
pub(super) fn is_kept(buffer: &Py_buffer) -> bool {
    ptr::eq(buffer.internal.cast(), &raw const NOTHING)
}

/// A buffer that owns nothing but a reference to the object.
fn described<T>(
    object: &Bound<'_, T>,
    tensor: &Tensor,
    description: &Description,
    request: BufferRequest,
) -> Py_buffer {
    let Description { numbers, len, itemsize, format, is_read_only } = description;
    let (ndim, numbers) = (numbers.len() / 2, numbers.as_ptr().cast_mut());
    let data = match tensor.data_ptr() {
        data if data.is_null() => (&raw const NOWHERE).cast_mut().cast(),
        data => data,
    };
    let format = format.filter(|_| request.asks(ffi::PyBUF_FORMAT));
    Py_buffer {
        buf: data,
        obj: object.clone().into_any().into_ptr(),
        len: *len,
        itemsize: *itemsize,
        readonly: c_int::from(*is_read_only),
        // Without a shape, a buffer has one axis: its bytes.
        ndim: if request.asks(ffi::PyBUF_ND) { ndim as c_int } else { 1 },
        format: format.map_or(ptr::null_mut(), |format| format.as_ptr().cast_mut()),
        shape: if request.asks(ffi::PyBUF_ND) { numbers } else { ptr::null_mut() },
        strides: if request.asks(ffi::PyBUF_STRIDES) {
            numbers.wrapping_add(ndim)
        } else {
            ptr::null_mut()
        },
        suboffsets: ptr::null_mut(),
        internal: (&raw const NOTHING).cast_mut().cast(),
    }
}

/// The body of `bf_getbuffer` of a class whose objects keep all that their buffers point to.
///
/// # Safety
///
/// Python's: `view` is a place to fill in, or null.
pub(crate) unsafe fn get<T: KeepsExtents>(
    object: &Bound<'_, T>,
    view: *mut Py_buffer,
    flags: c_int,
) -> Result<()> {
    let Some(view) = NonNull::new(view) else {
        return Err(Error::buffer("buffer: expected a place to write it to, found a null pointer"));
    };
    match fill(object, BufferRequest(flags)) {
        // SAFETY: the caller's duty; nothing there needs to be dropped.
        Ok(buffer) => unsafe { view.write(buffer) },
        Err(error) => {
            // PEP 3118: on failure, `obj` is null.
            // SAFETY: the caller's duty.
            unsafe { (*view.as_ptr()).obj = ptr::null_mut() };
            return Err(error);
        }
    }
    Ok(())
}

/// `bf_getbuffer` of a user's class: a buffer of the object that is made of its tensor.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `view` a place to fill in.
pub(crate) unsafe extern "C" fn forward<T: Publish>(
    object: *mut PyObject,
    view: *mut Py_buffer,
    flags: c_int,
) -> c_int {
    if let Some(view) = NonNull::new(view) {
        // PEP 3118: on failure, `obj` is null. The object below may not come to be.
        // SAFETY: the caller's duty.
        unsafe { (*view.as_ptr()).obj = ptr::null_mut() };
    }
    let work = |object: &Bound<'_, T>| {
        let py = object.py();
        let made = T::made(py, give_shared(T::on_host(object)?))?;
        // SAFETY: attached, and an object; the rest is the caller's duty (F1).
        match unsafe { ffi::PyObject_GetBuffer(made.as_ptr(), view, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(py).into()),
        }
    };
    // SAFETY: the caller's duty.
    unsafe { with_object(object, work) }.map_or(-1, |()| 0)
}

/// Whether an object's type has the buffer protocol.
pub(crate) fn has_buffer(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: a type, and a slot that every version has (F1).
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null()
}
