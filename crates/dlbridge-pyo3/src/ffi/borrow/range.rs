//! The bytes of the tensor that a descriptor describes. Counting borrows belongs to `table.rs`.

use dlbridge::ffi::Bytes;
use dlbridge::sys::DLTensor;
use dlbridge::{DType, Device};

/// The dtype and the shape of a descriptor.
///
/// # Safety
///
/// That of [`measure`].
#[cold]
pub(super) unsafe fn named(tensor: *const DLTensor) -> (DType, Vec<i64>) {
    // SAFETY: alive (the caller's duty).
    let tensor = unsafe { &*tensor };
    let shape = match tensor.ndim {
        0 => &[],
        // SAFETY: `ndim` numbers, since the descriptor was validated (R1, T2).
        rank => unsafe { std::slice::from_raw_parts(tensor.shape.cast_const(), rank as usize) },
    };
    (DType::from(tensor.dtype), shape.to_vec())
}

/// The bytes of a tensor in memory that the host can access; `None` without elements.
///
/// # Safety
///
/// It is the descriptor of a live [`Tensor`](dlbridge::Tensor): validated, with explicit strides.
pub(super) unsafe fn measure(tensor: *const DLTensor) -> Option<Bytes> {
    // SAFETY: alive (the caller's duty).
    let tensor = unsafe { &*tensor };
    if !Device::from(tensor.device).is_host_accessible() {
        return None;
    }
    let rank = tensor.ndim as usize;
    let list = |numbers: *const i64| {
        // SAFETY: `ndim` numbers, since the descriptor was validated (R1, T2).
        if rank == 0 { &[] } else { unsafe { std::slice::from_raw_parts(numbers, rank) } }
    };
    let start = tensor.data.addr().wrapping_add(tensor.byte_offset as usize);
    // Elements narrower than a byte count as one byte each: more than they are, never less.
    let bits = usize::from(tensor.dtype.bits) * usize::from(tensor.dtype.lanes);
    Bytes::of(start, list(tensor.shape.cast()), list(tensor.strides.cast()), bits.div_ceil(8))
}
