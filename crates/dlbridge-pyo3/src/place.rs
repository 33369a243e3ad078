//! Where a descriptor lies while the memory that it describes is lent: on the stack.
//! Filling it belongs to `exchange` and `numpy`.
//! Invariant: the descriptor can be read at any time, since it starts as an empty one.

use std::mem::MaybeUninit;
use std::ptr;

use dlbridge::MAX_RANK;
use dlbridge::sys::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};

/// A place for a descriptor, and for the strides of one that has none as DLPack counts them.
pub(crate) struct Place {
    pub(crate) descriptor: DLTensor,
    pub(crate) strides: [MaybeUninit<i64>; MAX_RANK],
}

impl Place {
    /// A place in which the gate finds nothing to let through.
    #[inline(always)]
    pub(crate) const fn empty() -> Self {
        let descriptor = DLTensor {
            data: ptr::null_mut(),
            device: DLDevice { device_type: DLDeviceType(0), device_id: 0 },
            ndim: 0,
            dtype: DLDataType { code: DLDataTypeCode(0), bits: 0, lanes: 0 },
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        Self { descriptor, strides: [const { MaybeUninit::uninit() }; MAX_RANK] }
    }
}
