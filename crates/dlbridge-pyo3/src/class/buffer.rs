//! The buffer protocol of `dlbridge.Tensor` and users' classes: exports host memory.
//! Installing these functions into the class belongs to `buffer_slots`.
//! Invariant: a request that cannot describe the tensor's layout fails with a `BufferError`. A buffer
//! owns a handle to its memory until it is released.

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use dlbridge::{Tensor, layout};
use pyo3::Borrowed;
use pyo3::ffi::{self, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use super::traits::{ExportDlpack, on_host};
use crate::dtypes::buffer::format_of;
use crate::ffi::buffer::{
    ANY_CONTIGUOUS, Buffer, C_CONTIGUOUS, F_CONTIGUOUS, FORMAT, ND, STRIDES, WRITABLE,
};
use crate::ffi::callbacks::{dropped, with_object};
use crate::release::ObjectTensor;
use crate::{Error, Result, TensorObject};

/// The address of an empty tensor without one: some consumers reject null.
static NOWHERE: u64 = 0;

/// The flags of a request (PEP 3118, `PyBUF_*`).
#[derive(Clone, Copy)]
struct BufferRequest(c_int);

impl BufferRequest {
    fn asks(self, flags: c_int) -> bool {
        self.0 & flags == flags
    }

    /// Whether a tensor can be exported for this request.
    fn check(self, tensor: &Tensor) -> Result<()> {
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
fn fill<T: ExportDlpack>(object: &Bound<'_, T>, request: BufferRequest) -> Result<Buffer> {
    let tensor = on_host(object)?;
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
pub(super) unsafe extern "C" fn get<T: ExportDlpack>(
    object: *mut ffi::PyObject,
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

/// Runs `__buffer__(flags)` (PEP 688): a `memoryview` of the object that `exporter` returns.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `flags` an object.
unsafe fn memoryview<T: ExportDlpack>(
    object: *mut ffi::PyObject,
    flags: *mut ffi::PyObject,
    exporter: impl for<'py> FnOnce(&Bound<'py, T>, Tensor) -> Result<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    let work = |object: &Bound<'_, T>| {
        // SAFETY: the caller's duty.
        let flags = unsafe { Borrowed::from_ptr(object.py(), flags) }.extract()?;
        let tensor = on_host(object)?;
        BufferRequest(flags).check(&tensor)?;
        Ok(PyMemoryView::from(&exporter(object, tensor)?)?.into_ptr())
    };
    // SAFETY: the caller's duty.
    unsafe { with_object(object, work) }.unwrap_or(ptr::null_mut())
}

/// `__buffer__(flags)` of the class: a `memoryview` of the object itself.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `flags` an object.
pub(super) unsafe extern "C" fn method<T: ExportDlpack>(
    object: *mut ffi::PyObject,
    flags: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's duty.
    unsafe { memoryview(object, flags, |object: &Bound<'_, T>, _| Ok(object.as_any().clone())) }
}

/// The same of a class whose buffer functions call it: a `memoryview` of a `dlbridge.Tensor`.
///
/// # Safety
///
/// Python's: attached, `object` is one of the class, `flags` an object.
pub(super) unsafe extern "C" fn forward<T: ExportDlpack>(
    object: *mut ffi::PyObject,
    flags: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the caller's duty.
    unsafe {
        memoryview(object, flags, |object: &Bound<'_, T>, tensor| {
            Ok(TensorObject::new(tensor).into_bound(object.py())?.into_any())
        })
    }
}

/// `bf_releasebuffer` of the class. Python itself drops the reference.
///
/// # Safety
///
/// Python's: attached, `view` was filled in by [`get`], and is released once.
pub(super) unsafe extern "C" fn release(_: *mut ffi::PyObject, view: *mut Buffer) {
    // SAFETY: the caller's duty; the field is read once.
    let owned = unsafe { std::mem::replace(&mut (*view).internal, ptr::null_mut()) };
    if !owned.is_null() {
        // SAFETY: a box that `fill` made (R7).
        dropped(unsafe { Box::from_raw(owned.cast::<Owned>()) });
    }
}
