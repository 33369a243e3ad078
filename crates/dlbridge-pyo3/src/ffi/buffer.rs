//! The buffer protocol (PEP 3118): the functions that export a class's host memory.
//! Installing them into a class belongs to `class`, importing buffers to `acquired`.
//! Invariants: a request that cannot describe the tensor's layout fails with a `BufferError`. A buffer of a
//! `dlbridge.Tensor` points to what that object keeps, so nothing is lost if Python code replaces
//! `__release_buffer__`; a buffer of a user's class owns a handle to its memory until it is released.

use std::ffi::{CStr, c_int};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use dlbridge::{Tensor, layout};
use pyo3::ffi::{self, Py_buffer, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::borrow::give_shared;
use super::callbacks::{Publish, dropped, with_object};
use crate::dtypes::buffer::format_of;
use crate::release::ObjectTensor;
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

/// What a buffer of a user's class owns.
struct Owned {
    _tensor: ObjectTensor,
    description: Description,
}

/// Fills in a buffer of a class's object, which owns a handle to the memory.
fn fill<T: Publish>(object: &Bound<'_, T>, request: BufferRequest) -> Result<Py_buffer> {
    let tensor = T::on_host(object)?;
    request.check(&tensor)?;
    let tensor = give_shared(tensor);
    let owned = Box::new(Owned {
        description: Description::of(&tensor)?,
        _tensor: ObjectTensor::new(tensor.clone()),
    });
    let buffer = described(object, &tensor, &owned.description, request);
    Ok(Py_buffer { internal: Box::into_raw(owned).cast(), ..buffer })
}

/// A class whose objects keep all that their buffers point to.
pub(crate) trait KeepsExtents: Publish {
    /// The tensor of an object, which is never replaced, once the host may read it, and the numbers that
    /// the object keeps.
    fn parts<'a>(object: &'a Bound<'_, Self>) -> Result<(&'a Tensor, &'a Extents)>;
}

/// Fills in a buffer of an object that keeps all that it points to.
fn fill_kept<T: KeepsExtents>(object: &Bound<'_, T>, request: BufferRequest) -> Result<Py_buffer> {
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
    let (rank, numbers) = (numbers.len() / 2, numbers.as_ptr().cast_mut());
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
        ndim: if request.asks(ffi::PyBUF_ND) { rank as c_int } else { 1 },
        format: format.map_or(ptr::null_mut(), |format| format.as_ptr().cast_mut()),
        shape: if request.asks(ffi::PyBUF_ND) { numbers } else { ptr::null_mut() },
        strides: if request.asks(ffi::PyBUF_STRIDES) {
            numbers.wrapping_add(rank)
        } else {
            ptr::null_mut()
        },
        suboffsets: ptr::null_mut(),
        internal: (&raw const NOTHING).cast_mut().cast(),
    }
}

/// `bf_getbuffer` of a class whose buffers own nothing, and need no `bf_releasebuffer`.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `view` a place to fill in.
pub(crate) unsafe fn get_kept<T: KeepsExtents>(
    object: *mut PyObject,
    view: *mut Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { get_by(object, view, BufferRequest(flags), fill_kept::<T>) }
}

/// `bf_getbuffer` of a user's class.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `view` a place to fill in.
pub(crate) unsafe extern "C" fn get<T: Publish>(
    object: *mut PyObject,
    view: *mut Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's duty.
    unsafe { get_by::<T>(object, view, BufferRequest(flags), fill) }
}

/// # Safety
///
/// As for [`get`].
unsafe fn get_by<T: Publish>(
    object: *mut PyObject,
    view: *mut Py_buffer,
    request: BufferRequest,
    fill: fn(&Bound<'_, T>, BufferRequest) -> Result<Py_buffer>,
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
    match unsafe { with_object(object, |object: &Bound<'_, T>| fill(object, request)) } {
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

/// `bf_releasebuffer` of a user's class. Python itself drops the reference.
///
/// # Safety
///
/// Python's: attached, `view` was filled in by [`get`], and is released once.
pub(crate) unsafe extern "C" fn release(_: *mut PyObject, view: *mut Py_buffer) {
    // SAFETY: the caller's duty; the field is read once.
    let owned = unsafe { std::mem::replace(&mut (*view).internal, ptr::null_mut()) };
    if !owned.is_null() {
        // SAFETY: a box that `fill` made (R7).
        dropped(unsafe { Box::from_raw(owned.cast::<Owned>()) });
    }
}

/// Whether an object's type has the buffer protocol.
pub(crate) fn has_buffer(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: a type, and a slot that every version has (F1).
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null()
}
