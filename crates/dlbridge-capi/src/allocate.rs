//! Tensors with memory of this library.
//! Invariant: the memory is host memory, row-major, and aligned to 64 bytes.

use dlbridge::Tensor;

use crate::entry::write_out;
use crate::error::{Error, Result, Status};
use crate::handle::{Origin, TensorHandle};
use crate::info::DataType;

/// Makes a tensor of zeros in row-major host memory, aligned to 64 bytes because JAX copies other
/// memory. `shape` has `ndim` extents; elements narrower than a byte are packed.
///
/// # Safety
///
/// `shape` is null, which is allowed if `ndim` is 0, or has `ndim` numbers; `out` is null or can be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_new(
    dtype: DataType,
    ndim: i32,
    shape: *const i64,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let zeros = || unsafe { zeros(dtype, ndim, shape) };
    let make = || Ok(TensorHandle::into_raw(zeros()?, Origin::C, None));
    // SAFETY: the caller's duty.
    unsafe { write_out(out, make) }
}

/// # Safety
///
/// As for [`dlb_new`].
unsafe fn zeros(dtype: DataType, ndim: i32, shape: *const i64) -> Result<Tensor> {
    let shape = match usize::try_from(ndim) {
        Ok(0) => &[],
        Ok(_) if shape.is_null() => {
            return Err(Error::Invalid("shape: expected `ndim` extents, found a null pointer"));
        }
        // SAFETY: as many numbers as the caller says, checked against the limit first (the caller's duty).
        Ok(ndim @ ..=64) => unsafe { std::slice::from_raw_parts(shape, ndim) },
        _ => return Err(Error::Unexpected(format!("ndim: expected 0 to 64, found {ndim}"))),
    };
    Ok(Tensor::zeros(dtype.dtype(), shape)?)
}

/// Copies a tensor into row-major host memory of its own, aligned to 64 bytes.
///
/// # Safety
///
/// `tensor` is null or a live tensor; `out` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_copy(
    tensor: *const TensorHandle,
    out: *mut *mut TensorHandle,
) -> Status {
    // SAFETY: the caller's duty.
    let tensor = unsafe { TensorHandle::borrow(tensor) };
    let copy = || Ok(TensorHandle::into_raw(tensor?.tensor().to_contiguous()?, Origin::C, None));
    // SAFETY: the caller's duty.
    unsafe { write_out(out, copy) }
}
