//! Allocates memory through NumPy's C API.
//! Choosing the allocator belongs to `allocator`.
//! Invariant: the array was made here, and no Python code has a reference to it. (A replaced
//! `numpy.empty` could return an array that is referenced elsewhere.)

use std::ptr;

use dlbridge::{DType, Tensor};
use pyo3::prelude::*;

use crate::Result;
use crate::dtypes::numpy::number_of;
use crate::ffi::numpy::{Api, MAX_RANK};
use crate::import::import_array;

/// A tensor over a new, zeroed array; `None` if NumPy does not have the dtype, or its version is
/// unknown.
pub(super) fn zeros(py: Python<'_>, dtype: DType, shape: &[i64]) -> Result<Option<Tensor>> {
    let (Some(number), Some(api)) = (number_of(dtype), Api::get(py)?) else { return Ok(None) };
    if shape.len() > MAX_RANK {
        return Ok(None);
    }
    // SAFETY: attached (F1); as many extents as axes, in numbers of 64 bits (`Api`). Without data,
    // NumPy allocates its own.
    let array = unsafe {
        (api.new)(
            api.array,
            shape.len() as i32,
            shape.as_ptr().cast(),
            number,
            ptr::null(),
            ptr::null_mut(),
            0,
            0,
            ptr::null_mut(),
        )
    };
    // SAFETY: a new reference, or null with an exception set (F3).
    let array = unsafe { Bound::from_owned_ptr_or_err(py, array) }?;
    // SAFETY: NumPy's own type, from a NumPy whose layout is known (F5).
    let Some(tensor) = (unsafe { import_array(array.as_borrowed()) })? else { return Ok(None) };
    // SAFETY: allocated in this function (T10); only the tensor keeps the array.
    Ok(Some(unsafe { tensor.into_exclusive_zeroed() }?))
}
