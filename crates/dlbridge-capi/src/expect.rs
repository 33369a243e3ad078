//! Checks a tensor against what a caller's code needs, in one call.
//! Whether a tensor is valid at all was checked at its import.
//! Invariant: a message names the first field that differs, what was expected, and what was found.

use std::ffi::c_int;

use dlbridge::Tensor;

use crate::entry::guarded;
use crate::error::{Error, Result, Status};
use crate::handle::TensorHandle;
use crate::info::DataType;

/// For `dlb_expect`: the host can read the memory.
pub const DLB_EXPECT_HOST: u32 = 1;
/// For `dlb_expect`: the elements are contiguous in row-major order.
pub const DLB_EXPECT_CONTIGUOUS: u32 = 2;
/// For `dlb_expect`: the elements may be written.
pub const DLB_EXPECT_WRITABLE: u32 = 4;

/// Checks that a tensor is what the caller's code can use: its type, unless `dtype` is all zeros; its
/// number of axes, unless `ndim` is negative; and a sum of `DLB_EXPECT_*`. Fails with
/// `DLB_STATUS_REFUSED` and a message such as "dtype: expected float32, found float64".
///
/// # Safety
///
/// `tensor` is null, which fails, or a live tensor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlb_expect(
    tensor: *const TensorHandle,
    dtype: DataType,
    ndim: c_int,
    properties: u32,
) -> Status {
    // SAFETY: the caller's duty.
    let tensor = unsafe { TensorHandle::borrow(tensor) };
    guarded(|| check(tensor?.tensor(), dtype, ndim, properties))
}

fn check(tensor: &Tensor, dtype: DataType, ndim: c_int, properties: u32) -> Result<()> {
    if properties & !(DLB_EXPECT_HOST | DLB_EXPECT_CONTIGUOUS | DLB_EXPECT_WRITABLE) != 0 {
        return Err(Error::Invalid(
            "properties: expected a sum of DLB_EXPECT_*, found another bit; the program was compiled for \
             a newer library, or passes something else",
        ));
    }
    let asks = |property| properties & property != 0;
    let (expected, found) = (dtype.dtype(), tensor.dtype());
    let is_any = dtype == DataType { code: 0, bits: 0, lanes: 0 };
    if !is_any && expected != found {
        return Err(Error::Unexpected(format!("dtype: expected {expected}, found {found}")));
    }
    if usize::try_from(ndim).is_ok_and(|ndim| ndim != tensor.ndim()) {
        let found = tensor.ndim();
        return Err(Error::Unexpected(format!("ndim: expected {ndim}, found {found}")));
    }
    if asks(DLB_EXPECT_HOST) && !tensor.device().is_host_accessible() {
        let found = tensor.device();
        return Err(Error::Unexpected(format!("device: expected host memory, found {found}")));
    }
    if asks(DLB_EXPECT_CONTIGUOUS) && !tensor.is_contiguous() {
        let found = tensor.strides();
        return Err(Error::Unexpected(format!(
            "strides: expected contiguous elements in row-major order, found {found:?}; use dlb_copy"
        )));
    }
    if asks(DLB_EXPECT_WRITABLE) && tensor.is_read_only() {
        let found = match tensor.is_legacy_read_only() {
            true => "a legacy tensor, whose ABI cannot say so",
            false => "DLB_FLAG_READ_ONLY",
        };
        return Err(Error::Unexpected(format!(
            "flags: expected writable elements, found {found}; use dlb_copy"
        )));
    }
    Ok(())
}
