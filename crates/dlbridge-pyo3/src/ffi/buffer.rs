//! The buffer protocol (PEP 3118): the functions that export a class's host memory, and the import of
//! buffers. Installing the functions into a class belongs to `class`.
//! Invariants: a request that cannot describe the tensor's layout fails with a `BufferError`. A buffer of a
//! `dlbridge.Tensor` points to what that object keeps, so nothing is lost if Python code replaces
//! `__release_buffer__`; a buffer of a user's class owns a handle to its memory until it is released. A
//! tensor owns the acquired buffer itself, which no Python code can find and release, and which is
//! released once.

use std::ffi::{CStr, c_int};
use std::hint::black_box;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;

use dlbridge::ffi::{Unwinds, from_owner_within, room, stopping};
use dlbridge::sys::DLTensor;
use dlbridge::{DType, Device, Flags, Tensor, layout};
use pyo3::Borrowed;
use pyo3::ffi::{self, Py_buffer, Py_ssize_t, PyObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::borrow::give_shared;
use super::callbacks::{Publish, dropped, with_object};
use super::memory::ForeignMemory;
use crate::dtypes::buffer::{dtype_of, format_of, size_of_item};
use crate::release::{NeedsInterpreter, ObjectTensor, Owner};
use crate::{Error, Result};

/// A request for a read-only buffer of any format and strides, and with sub-offsets.
const FULL_READ_ONLY: c_int = ffi::PyBUF_FULL_RO;

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
        _tensor: ObjectTensor::of(tensor.clone()),
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
        internal: ptr::null_mut(),
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

/// Imports an object's buffer.
pub(crate) fn import_buffer(object: Borrowed<'_, '_, PyAny>) -> Result<Tensor> {
    let buffer = Acquired::new(object)?;
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
    Ok(unsafe { dlbridge::ffi::assume_legacy(import_buffer(object)?) })
}

/// An object's buffer and its description.
pub(crate) fn open(object: Borrowed<'_, '_, PyAny>) -> Result<(Acquired, ForeignMemory)> {
    let buffer = Acquired::new(object)?;
    let memory = buffer.memory()?;
    Ok((buffer, memory))
}

/// Whether an object's type has the buffer protocol.
pub(crate) fn has_buffer(kind: &Bound<'_, PyType>) -> bool {
    // SAFETY: a type, and a slot that every version has (F1).
    !unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_bf_getbuffer) }.is_null()
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
        let rank = usize::try_from(self.fields().ndim).unwrap_or(0);
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
        let release: unsafe extern "C" fn(*mut Py_buffer) = black_box(ffi::PyBuffer_Release);
        let view = self.0.as_ptr().cast::<Py_buffer>();
        // SAFETY: filled in by `new`, attached, and released once (F1, F8).
        stopping(|| unsafe { release.unwinding()(view) });
        Self(self.0).free();
    }
}
