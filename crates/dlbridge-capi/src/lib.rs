//! A C API over `dlbridge`, and the engine of the Julia package.
//!
//! Tensors come from DLPack's managed descriptors or from Python objects, are checked once, and are
//! opaque to C. The header `include/dlbridge.h` is generated from this crate; each function has the
//! duties of its caller.
//!
//! | I have | I want | call |
//! | --- | --- | --- |
//! | a `DLManagedTensorVersioned *` or `DLManagedTensor *` | a checked tensor | [`dlb_from_versioned`], [`dlb_from_legacy`] |
//! | a `PyObject *` | the same | [`dlb_from_python`] |
//! | a tensor | its address, shape, type, device | [`dlb_tensor_info`] |
//! | a tensor | whether it counts as read-only because its legacy descriptor has no flag | [`dlb_is_legacy_read_only`] |
//! | a tensor | to check that my code can use it | [`dlb_expect`] |
//! | a tensor | a copy | [`dlb_copy`] |
//! | a shape | a tensor of zeros, aligned to 64 bytes | [`dlb_new`] |
//! | a tensor | a second reference | [`dlb_retain`] |
//! | a tensor | to release it | [`dlb_release`], or [`dlb_queue_release`] where a deleter must not run |
//! | memory and its owner | a tensor | [`dlb_export`] |
//! | a tensor | to export it | [`dlb_into_versioned`], [`dlb_into_legacy`], [`dlb_into_python`], [`dlb_into_capsule`] |
//! | tensors | sealed memory that another process can read | [`dlb_sealed_copy`] |
//! | a descriptor of sealed memory | its tensors | [`dlb_sealed_open`], [`dlb_sealed_tensor`] |
//! | a failure | its reason | [`dlb_last_error`], or [`dlb_attempt`] where a function changes threads |
//!
//! No function unwinds. Python is never linked: its functions are looked up in the running process
//! when they are first needed.
#![allow(unsafe_code, reason = "foreign-function code by nature: its callers are written in C")]

mod allocate;
mod codes;
mod entry;
mod error;
mod expect;
mod export;
mod handle;
mod import;
mod info;
mod python;
mod queue;
mod sealed;
mod sized;

pub use allocate::{dlb_copy, dlb_new};
pub use codes::*;
pub use entry::{DLB_API_VERSION, dlb_api_version, dlb_attempt, dlb_last_error, dlb_version};
pub use error::{Status, dlb_status_name};
pub use expect::{DLB_EXPECT_CONTIGUOUS, DLB_EXPECT_HOST, DLB_EXPECT_WRITABLE, dlb_expect};
pub use export::{
    Memory, dlb_export, dlb_export_python, dlb_into_capsule, dlb_into_legacy, dlb_into_python,
    dlb_into_versioned,
};
pub use handle::TensorHandle;
pub use import::{
    Request, dlb_delete_legacy, dlb_delete_versioned, dlb_from_legacy, dlb_from_python,
    dlb_from_versioned, dlb_is_legacy_read_only, dlb_release, dlb_retain, dlb_tensor_info,
    dlb_use_python,
};
pub use info::{DataType, DeviceId, TensorInfo, dlb_device_name, dlb_dtype_name, dlb_dtype_parse};
pub use python::PyObject;
pub use queue::{
    ReleaseQueue, dlb_queue_close, dlb_queue_descriptor, dlb_queue_drain, dlb_queue_mute,
    dlb_queue_new, dlb_queue_pending, dlb_queue_release, dlb_queue_take,
};
pub use sealed::{
    SealedHandle, dlb_sealed_close, dlb_sealed_copy, dlb_sealed_count, dlb_sealed_descriptor,
    dlb_sealed_name, dlb_sealed_open, dlb_sealed_private, dlb_sealed_tensor,
};
