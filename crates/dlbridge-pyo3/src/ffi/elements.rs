//! Elements for Python code: the types that Rust lacks, their bytes. Compiled with the feature
//! `tensor-methods`.
//! Invariant: only memory that the host can read is read.

use std::ffi::c_int;
use std::hint::black_box;

use dlbridge::ffi::{Unwinds, stopping};
use dlbridge::{DType, Element, Tensor, TypeCode};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PySlice};
use pyo3::{Borrowed, ffi};

use crate::{Error, Result};

/// The first index of a slice of so many items, its step, and how many items it has.
///
/// # Errors
///
/// That of Python for a slice of what are no integers.
pub(crate) fn range_of(slice: Borrowed<'_, '_, PySlice>, len: isize) -> PyResult<[isize; 3]> {
    // The compiler would see a function that is declared as one that does not unwind.
    let unpack: Unpack = black_box(ffi::PySlice_Unpack);
    let [mut start, mut stop, mut step] = [0; 3];
    let (object, places) = (slice.as_ptr(), [&raw mut start, &raw mut stop, &raw mut step]);
    // SAFETY: attached, a slice, and places to fill in (F1).
    let status =
        stopping(|| unsafe { unpack.unwinding()(object, places[0], places[1], places[2]) });
    if status != 0 {
        return Err(PyErr::fetch(slice.py()));
    }
    // SAFETY: numbers, and places to change (F1).
    let count = unsafe { ffi::PySlice_AdjustIndices(len, &mut start, &mut stop, step) };
    Ok([start, step, count])
}

type Unpack = unsafe extern "C" fn(*mut ffi::PyObject, *mut isize, *mut isize, *mut isize) -> c_int;

/// The bytes of all elements in row-major order, as a copy, which is written once.
///
/// # Errors
///
/// A `MemoryError`, and an error for memory that the host cannot read.
pub(crate) fn to_bytes<'py>(py: Python<'py>, tensor: &Tensor) -> Result<Bound<'py, PyBytes>> {
    let is_copied_at_once = tensor.is_contiguous() && tensor.device().is_host_accessible();
    if !is_copied_at_once || tensor.is_empty() {
        let copy = |bytes: &mut [u8]| {
            tensor.copy_to_bytes(bytes).map_err(|error| PyErr::from(Error::from(error)))
        };
        return Ok(PyBytes::new_with(py, tensor.nbytes(), copy)?);
    }
    let (data, size) = (tensor.data_ptr().cast(), tensor.nbytes() as isize);
    // SAFETY: attached (F1); `size` bytes from `data` on, which the host reads, since the elements are
    // contiguous (R1); the tensor lives during the call (R2).
    let bytes = unsafe { ffi::PyBytes_FromStringAndSize(data, size) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, bytes) }?;
    Ok(bytes.cast_into().map_err(PyErr::from)?)
}

/// The number of items of a list between two looks at signals.
const BETWEEN_SIGNALS: usize = 1 << 16;

/// A list of objects, which `object` makes. The garbage collector does not have it before it is full, since Python code,
/// such as a handler of a signal, would find places without an object in it.
///
/// # Errors
///
/// A `MemoryError`, where PyO3 panics, and the exception of a handler, which ends a list that takes long.
pub(crate) fn list_of<'py>(
    py: Python<'py>,
    count: usize,
    mut object: impl FnMut() -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached (F1).
    let list = unsafe { ffi::PyList_New(count as ffi::Py_ssize_t) };
    // SAFETY: a new reference, or null with an exception set (F3).
    let list = unsafe { Bound::from_owned_ptr_or_err(py, list) }.map_err(|_| {
        // A broadcast tensor has any number of elements.
        let size = count.saturating_mul(size_of::<Py<PyAny>>());
        Error::from(dlbridge::Error::OutOfMemory { size })
    })?;
    // SAFETY: attached, and an object of a class with the collector (F1).
    unsafe { ffi::PyObject_GC_UnTrack(list.as_ptr().cast()) };
    for index in 0..count {
        if index % BETWEEN_SIGNALS == 0 {
            py.check_signals()?;
        }
        let object = object()?.into_ptr();
        // SAFETY: attached, a list, and a reference that it takes (F1, F3).
        if unsafe { ffi::PyList_SetItem(list.as_ptr(), index as ffi::Py_ssize_t, object) } != 0 {
            return Err(PyErr::fetch(py));
        }
    }
    // SAFETY: attached, and an object that the collector does not have (F1).
    unsafe { ffi::PyObject_GC_Track(list.as_ptr().cast()) };
    Ok(list)
}

/// The int of a number, as Python's `int` makes it.
///
/// # Errors
///
/// That of Python for a number that has none.
pub(crate) fn int_of<'py>(number: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: attached, and an object (F1).
    let int = unsafe { ffi::PyNumber_Long(number.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(number.py(), int) }
}

/// The same of a float.
///
/// # Errors
///
/// Python's `OverflowError` for an infinity, and its `ValueError` for a NaN.
pub(crate) fn int_of_float(py: Python<'_>, number: f64) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: attached (F1).
    let int = unsafe { ffi::PyLong_FromDouble(number) };
    // SAFETY: a new reference, or null with an exception set (F3).
    unsafe { Bound::from_owned_ptr_or_err(py, int) }
}

/// A float of 16 bits, which Rust has no type for.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Half(u16);

/// The upper half of a `f32`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Bfloat(u16);

/// A float of 8 bits, of a type code.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Float8<const CODE: u8>(u8);

/// A real and an imaginary part.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Complex<T>(pub(crate) [T; 2]);

// SAFETY: 16 bits, any of which are a value (Element's duty).
unsafe impl Element for Half {
    const DTYPE: DType = DType::F16;
}

// SAFETY: the same.
unsafe impl Element for Bfloat {
    const DTYPE: DType = DType::BF16;
}

// SAFETY: 8 bits, any of which are a value; a type without its code is none that tensors have (Element's duty).
unsafe impl<const CODE: u8> Element for Float8<CODE> {
    const DTYPE: DType = DType::new(TypeCode(CODE), 8);
}

// SAFETY: two floats, any bits of which are a value (Element's duty).
unsafe impl Element for Complex<f32> {
    const DTYPE: DType = DType::COMPLEX64;
}

// SAFETY: the same.
unsafe impl Element for Complex<f64> {
    const DTYPE: DType = DType::COMPLEX128;
}

impl Half {
    pub(crate) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 >> 15) << 31;
        let (exponent, mantissa) = (u32::from(self.0 >> 10) & 0x1f, u32::from(self.0) & 0x3ff);
        match exponent {
            // Subnormal: exact in a float of 32 bits.
            0 => f32::from_bits(sign | (mantissa as f32 / 16_777_216.0).to_bits()),
            0x1f => f32::from_bits(sign | 0x7f80_0000 | mantissa << 13),
            _ => f32::from_bits(sign | (exponent + 112) << 23 | mantissa << 13),
        }
    }
}

impl<const CODE: u8> Float8<CODE> {
    pub(crate) fn to_f32(self) -> f32 {
        // The bits of the mantissa, the bias of the exponent, and what the highest exponent is.
        let (width, bias, top) = match TypeCode(CODE) {
            TypeCode::FLOAT8_E3M4 => (4, 3, Top::Infinity),
            TypeCode::FLOAT8_E4M3 => (3, 7, Top::Infinity),
            TypeCode::FLOAT8_E4M3B11FNUZ => (3, 11, Top::Numbers),
            TypeCode::FLOAT8_E4M3FN => (3, 7, Top::OneNan),
            TypeCode::FLOAT8_E4M3FNUZ => (3, 8, Top::Numbers),
            TypeCode::FLOAT8_E5M2 => (2, 15, Top::Infinity),
            TypeCode::FLOAT8_E5M2FNUZ => (2, 16, Top::Numbers),
            // FLOAT8_E8M0FNU: an exponent alone.
            _ if self.0 == u8::MAX => return f32::NAN,
            _ => return 2.0_f32.powi(i32::from(self.0) - 127),
        };
        let magnitude = self.0 & 0x7f;
        let (exponent, mantissa) = (magnitude >> width, magnitude & ((1 << width) - 1));
        let is_top = exponent == 0x7f >> width;
        let value = match top {
            // The bits of a negative zero.
            Top::Numbers if self.0 == 0x80 => return f32::NAN,
            Top::OneNan if magnitude == 0x7f => f32::NAN,
            Top::Infinity if is_top && mantissa == 0 => f32::INFINITY,
            Top::Infinity if is_top => f32::NAN,
            _ if exponent == 0 => f32::from(mantissa) * 2.0_f32.powi(1 - bias - width),
            _ => {
                let whole = f32::from(mantissa | 1 << width);
                whole * 2.0_f32.powi(i32::from(exponent) - bias - width)
            }
        };
        if self.0 & 0x80 == 0 { value } else { -value }
    }
}

/// What the highest exponent of a float of 8 bits is for.
enum Top {
    /// Infinity, and NaNs, as in IEEE 754.
    Infinity,
    /// Numbers, and a NaN of each sign (FN).
    OneNan,
    /// Numbers alone; the only NaN has the bits of the negative zero (FNUZ).
    Numbers,
}

impl Bfloat {
    pub(crate) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }
}
