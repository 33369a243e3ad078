// Where a buffer's bytes lie, and buffers over tensors. Arrow never writes to memory that a `Buffer`
// shares.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::super::arrow::buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use crate::adapters::memory::Strided;
use crate::{Element, Error, Tensor};

// A buffer's bytes are behind an `Arc`, which only a unique holder can write.
owner_of_array!([] Buffer => [u8]);
owner_of_array!([T: ArrowNativeType + Element] ScalarBuffer<T> => [T]);

/// The contiguous elements as bytes, in a buffer that keeps the tensor alive.
pub(super) fn buffer(tensor: Tensor) -> Result<Buffer, Error> {
    let checked = tensor.checked();
    checked.check_host()?;
    checked.check_unwritten()?;
    checked.check_contiguous()?;
    let (data, size) = (checked.data(), checked.nbytes());
    let Some(data) = NonNull::new(data).filter(|_| size > 0) else { return Ok(Buffer::default()) };
    // SAFETY: host memory of this size (R1), alive as long as the tensor, which nobody writes (R4)
    // and which is the allocation's owner.
    Ok(unsafe { Buffer::from_custom_allocation(data, size, Arc::new(tensor)) })
}
