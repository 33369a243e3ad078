//! The structs of the header, field for field.
//! Checks, accessors, `Drop` and thread markers must not live here.
//! Invariant: each struct is `repr(C)` and has the fields of its C counterpart, in its order.

use core::ffi::c_void;

use crate::{DLDataTypeCode, DLDeviceType, DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};

/// A version of the ABI (struct `DLPackVersion`, since DLPack 1.0). Orders by major, then minor.
///
/// The major number changes with the layout; the minor one when codes or flags are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout. Look at this before anything that follows the deleter.
    pub major: u32,
    /// Changes when codes or flags are added; the layout stays.
    pub minor: u32,
}

impl DLPackVersion {
    /// The version that this crate describes: 1.3.
    pub const CURRENT: Self = Self { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
}

/// Where a tensor's memory lies (struct `DLDevice`, DLPack 1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDevice {
    /// The kind of device.
    pub device_type: DLDeviceType,
    /// Which device of that kind, counted from 0; 0 for plain, pinned and managed host memory.
    pub device_id: i32,
}

/// What an element is (struct `DLDataType`, DLPack 1.3). Always in the byte order of the machine.
///
/// An element takes `bits * lanes` bits. Elements narrower than a byte are packed, the first in the
/// low bits, unless the tensor's flags say that they are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DLDataType {
    /// The kind of number.
    pub code: DLDataTypeCode,
    /// Width of one lane in bits; of a complex number, of both its parts together.
    pub bits: u8,
    /// How many numbers make one element: 1, except for vector types.
    pub lanes: u16,
}

/// A strided tensor that somebody else owns (struct `DLTensor`, DLPack 1.3).
///
/// Who keeps memory, shape and strides alive, and for how long, depends on where the descriptor
/// came from; the managed structs, and the callbacks of
/// [`DLPackExchangeAPI`](crate::DLPackExchangeAPI), say it for theirs.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLTensor {
    /// Start of the memory, [`byte_offset`](Self::byte_offset) not yet added. A host or device
    /// address, or an opaque handle on some devices (`cl_mem` on OpenCL).
    ///
    /// The header asks for an alignment of 256 bytes and for null when there are no elements, and
    /// notes itself that producers do not align: rely on neither.
    pub data: *mut c_void,
    /// Where the memory lies.
    pub device: DLDevice,
    /// Number of axes; 0 for a scalar.
    pub ndim: i32,
    /// What an element is.
    pub dtype: DLDataType,
    /// `ndim` extents, in elements. May be null if `ndim` is 0.
    pub shape: *mut i64,
    /// `ndim` steps between neighbours along an axis, in elements, not bytes; may be zero or
    /// negative. May be null if `ndim` is 0.
    ///
    /// Before DLPack 1.2 null also meant compact and row-major, and some producers that report a
    /// newer version still mean that.
    pub strides: *mut i64,
    /// Distance from [`data`](Self::data) to the first element, in bytes.
    pub byte_offset: u64,
}

/// Releases a [`DLManagedTensor`], the struct itself included (type of its field `deleter`).
///
/// # Safety
///
/// The argument is the struct that the pointer was read from. It is called at most once, and
/// nothing that came from the struct is used afterwards.
pub type DLManagedTensorDeleter = unsafe extern "C" fn(*mut DLManagedTensor);

/// A tensor with an owner, in the form used before versions (struct `DLManagedTensor`, DLPack 1.3).
///
/// The header deprecates it. It has neither flags nor a version, so it cannot say read-only. Its
/// consumer calls [`deleter`](Self::deleter) once, when it no longer needs the tensor.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor; memory, shape and strides live until the deleter runs.
    pub dl_tensor: DLTensor,
    /// The producer's own business; may be null.
    pub manager_ctx: *mut c_void,
    /// Releases everything, this struct included. Null where the producer has nothing to call.
    pub deleter: Option<DLManagedTensorDeleter>,
}

/// Releases a [`DLManagedTensorVersioned`], the struct itself included (type of its field
/// `deleter`).
///
/// # Safety
///
/// The argument is the struct that the pointer was read from, whatever major version it reports.
/// It is called at most once, and nothing that came from the struct is used afterwards.
pub type DLManagedTensorVersionedDeleter = unsafe extern "C" fn(*mut DLManagedTensorVersioned);

/// A tensor with an owner, a version and flags (struct `DLManagedTensorVersioned`, since DLPack
/// 1.0). Its consumer calls [`deleter`](Self::deleter) once, when it no longer needs the tensor.
///
/// The fields up to `flags` keep their place in every future major version. If `version.major` is
/// not [`DLPACK_MAJOR_VERSION`], call the deleter and look at nothing else.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of the ABI that the producer filled the struct for.
    pub version: DLPackVersion,
    /// The producer's own business; may be null.
    pub manager_ctx: *mut c_void,
    /// Releases everything, this struct included. Null where the producer has nothing to call.
    pub deleter: Option<DLManagedTensorVersionedDeleter>,
    /// Bits, see [`DLPACK_FLAG_BITMASK_READ_ONLY`](crate::DLPACK_FLAG_BITMASK_READ_ONLY) and its
    /// neighbours; 0 when there is nothing to say. Other bits belong to newer minor versions.
    pub flags: u64,
    /// The tensor; memory, shape and strides live until the deleter runs.
    pub dl_tensor: DLTensor,
}
