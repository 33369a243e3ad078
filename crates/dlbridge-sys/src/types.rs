//! The structs of the header, field by field, without checks, accessors, `Drop` or thread markers.
//! Invariant: each struct is `repr(C)` and has the fields of its C counterpart, in its order.

use core::ffi::c_void;

use crate::{DLDataTypeCode, DLDeviceType, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};

/// A version of the ABI (struct `DLPackVersion`, since DLPack 1.0). Orders by major, then minor.
///
/// The major number changes with the layout; the minor one when codes or flags are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout. Read this before any field that follows the deleter.
    pub major: u32,
    /// Changes when codes or flags are added; the layout stays.
    pub minor: u32,
}

impl DLPackVersion {
    /// The version that this crate describes: 1.3.
    pub const CURRENT: Self = Self { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
}

/// The device of a tensor's memory (struct `DLDevice`, DLPack 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDevice {
    /// The type of device.
    pub device_type: DLDeviceType,
    /// The index of the device among those of its type, from 0; 0 for plain, pinned and managed
    /// host memory.
    pub device_id: i32,
}

/// The type of an element (struct `DLDataType`, DLPack 1.3), in the machine's byte order.
///
/// An element takes `bits * lanes` bits. Elements narrower than a byte are packed, the first in the
/// low bits, unless the tensor's flags say that they are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDataType {
    /// The class of number.
    pub code: DLDataTypeCode,
    /// Width of one lane in bits; a complex number counts both its parts.
    pub bits: u8,
    /// How many numbers make one element: 1, except for vector types.
    pub lanes: u16,
}

/// The descriptor of a strided tensor, without its owner (struct `DLTensor`, DLPack 1.3).
///
/// How long memory, shape and strides live depends on the source of the descriptor: see the managed
/// structs and the callbacks of [`DLPackExchangeAPI`](crate::DLPackExchangeAPI).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// Start of the memory, [`byte_offset`](Self::byte_offset) not yet added. A host or device
    /// address, or an opaque handle on some devices (`cl_mem` on OpenCL).
    ///
    /// The header requires an alignment of 256 bytes, and null if there are no elements, but notes
    /// that producers do not align: rely on neither.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// Number of axes; 0 for a scalar.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// `ndim` extents, in elements. May be null if `ndim` is 0.
    pub shape: *mut i64,
    /// `ndim` distances between neighbours along an axis, in elements, not bytes; may be zero or
    /// negative. May be null if `ndim` is 0.
    ///
    /// Before DLPack 1.2 null also meant C-contiguous (row-major), and some producers that report a
    /// newer version still use it so.
    pub strides: *mut i64,
    /// Distance from [`data`](Self::data) to the first element, in bytes.
    pub byte_offset: u64,
}

/// Releases a [`DLManagedTensor`], the struct itself included (type of its field `deleter`).
///
/// # Safety
///
/// The argument is the struct that the pointer was read from. The deleter is called at most once,
/// and neither the struct nor its tensor is used afterwards.
pub type DLManagedTensorDeleter = unsafe extern "C" fn(*mut DLManagedTensor);

/// A managed tensor of the legacy ABI: a tensor with an owner (struct `DLManagedTensor`, DLPack
/// 1.3).
///
/// The header deprecates it. It has neither version nor flags, so it cannot express read-only. Its
/// consumer calls [`deleter`](Self::deleter) once, when it no longer needs the tensor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor; memory, shape and strides live until the deleter runs.
    pub dl_tensor: DLTensor,
    /// Private data of the producer; may be null.
    pub manager_ctx: *mut c_void,
    /// Releases everything, including this struct. Null if the producer has nothing to release.
    pub deleter: Option<DLManagedTensorDeleter>,
}

/// Releases a [`DLManagedTensorVersioned`], the struct itself included (type of its field
/// `deleter`).
///
/// # Safety
///
/// The argument is the struct that the pointer was read from, whatever major version it reports.
/// The deleter is called at most once, and neither the struct nor its tensor is used afterwards.
pub type DLManagedTensorVersionedDeleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

/// A managed tensor of the versioned ABI: a tensor with an owner, a version and flags (struct
/// `DLManagedTensorVersioned`, since DLPack 1.0). Its consumer calls [`deleter`](Self::deleter)
/// once, when it no longer needs the tensor.
///
/// The fields up to `flags` keep their place in every future major version. If `version.major` is
/// not [`DLPACK_MAJOR_VERSION`], call the deleter and read no other field.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of the ABI that the producer wrote.
    pub version: DLPackVersion,
    /// Private data of the producer; may be null.
    pub manager_ctx: *mut c_void,
    /// Releases everything, including this struct. Null if the producer has nothing to release.
    pub deleter: Option<DLManagedTensorVersionedDeleter>,
    /// Bits, see [`DLPACK_FLAG_BITMASK_READ_ONLY`](crate::DLPACK_FLAG_BITMASK_READ_ONLY) and its
    /// neighbours; 0 for none. Other bits belong to newer minor versions.
    pub flags: u64,
    /// The tensor; memory, shape and strides live until the deleter runs.
    pub dl_tensor: DLTensor,
}
