//! The C ABI of DLPack 1.3: structs, codes, flags and the table of C callbacks.
//! This crate has no behaviour: no checks, no ownership, no `Drop`, no unsafe code.
//! Invariant: every type has the layout of its C counterpart, and no bit pattern of one is invalid.
//!
//! # When to use it
//!
//! To implement one side of a DLPack exchange by hand. For tensors that are validated and released
//! exactly once, use the crate `dlbridge`, which is built on this one.
//!
//! | I need | item |
//! | --- | --- |
//! | the tensor descriptor and its two owning forms | [`DLTensor`], [`DLManagedTensorVersioned`], [`DLManagedTensor`] |
//! | the device of the memory | [`DLDevice`], [`DLDeviceType`] |
//! | the element type | [`DLDataType`], [`DLDataTypeCode`] |
//! | the flag word | [`DLPACK_FLAG_BITMASK_READ_ONLY`] and its two neighbours |
//! | the version | [`DLPackVersion::CURRENT`] |
//! | the C callbacks of a Python array type | [`DLPackExchangeAPI`] |
//!
//! # Example
//!
//! A descriptor that borrows a Rust array, as a C function taking `DLTensor *` needs it:
//!
//! ```
//! use dlbridge_sys::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLTensor};
//!
//! let mut data = [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0];
//! let (mut shape, mut strides) = ([2_i64, 3], [3_i64, 1]);
//! let tensor = DLTensor {
//!     data: data.as_mut_ptr().cast(),
//!     device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
//!     ndim: 2,
//!     dtype: DLDataType { code: DLDataTypeCode::FLOAT, bits: 32, lanes: 1 },
//!     shape: shape.as_mut_ptr(),
//!     strides: strides.as_mut_ptr(),
//!     byte_offset: 0,
//! };
//! assert_eq!(tensor.dtype.code.0, 2);
//! ```
//!
//! # Names and types
//!
//! Structs and fields keep their C names. The two C enums are transparent integer newtypes, because
//! a newer producer may send a code that this crate does not name. Every function pointer is an
//! [`Option`], even if the header forbids null: real producers send null, and reading the field
//! must not be undefined behaviour.
//!
//! # Threads
//!
//! The ABI does not say whether the memory of a descriptor may be used on another thread, so the
//! structs with pointers are neither [`Send`] nor [`Sync`]. A crate that knows more wraps them.
//!
//! ```compile_fail,E0277
//! fn needs_send<T: Send>() {}
//! needs_send::<dlbridge_sys::DLTensor>();
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod codes;
mod exchange;
mod layout;
mod types;

pub use codes::{
    DLDataTypeCode, DLDeviceType, DLPACK_FLAG_BITMASK_IS_COPIED,
    DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION,
};
pub use exchange::{
    DLPackCurrentWorkStream, DLPackDLTensorFromPyObjectNoSync, DLPackExchangeAPI,
    DLPackExchangeAPIHeader, DLPackManagedTensorAllocator, DLPackManagedTensorFromPyObjectNoSync,
    DLPackManagedTensorToPyObjectNoSync, DLPackSetError,
};
pub use types::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorDeleter, DLManagedTensorVersioned,
    DLManagedTensorVersionedDeleter, DLPackVersion, DLTensor,
};
