//! The one error of this crate.
//! Turning it into another language's exceptions does not belong here.
//! Invariant: every variant carries the numbers that a user needs to mend the input.

use std::fmt;

use crate::{DType, Device, PartError};

/// Why a tensor was refused, or cannot be used the way it was asked for.
///
/// Messages name the field, what was expected and found, and the call that helps:
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1_i32, 2, 3]);
/// let error = tensor.as_slice::<f32>().unwrap_err();
/// assert_eq!(error.to_string(), "dtype: expected float32, found int32");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A pointer to a whole managed tensor is null.
    NullTensor,
    /// The descriptor was made for another major version of DLPack.
    UnsupportedVersion {
        /// Major version found.
        major: u32,
        /// Minor version found.
        minor: u32,
    },
    /// `ndim` is negative or above [`MAX_RANK`](crate::MAX_RANK).
    RankOutOfRange {
        /// The `ndim` found.
        ndim: i32,
    },
    /// `shape` is null although there are axes.
    NullShape {
        /// The `ndim` found.
        ndim: i32,
    },
    /// An extent is negative.
    NegativeExtent {
        /// Which axis.
        axis: usize,
        /// The extent found.
        extent: i64,
    },
    /// A count of elements, of bytes, or the distance between two elements does not fit `isize`.
    SizeOverflow {
        /// What is too large.
        what: &'static str,
    },
    /// No tensor can have this element type.
    ImpossibleDType {
        /// The type found.
        dtype: DType,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// `data` is null although there are elements.
    NullData {
        /// How many elements there should be.
        len: usize,
    },
    /// `data + byte_offset`, or an element's address, lies outside the address space.
    AddressOverflow {
        /// The byte offset found.
        byte_offset: u64,
    },
    /// The elements have another type than was asked for.
    DTypeMismatch {
        /// The type found.
        found: DType,
        /// The type asked for.
        expected: DType,
    },
    /// The memory cannot be read by this process.
    NotHostAccessible {
        /// Where the memory lies.
        device: Device,
    },
    /// The data is not aligned for the type asked for.
    Misaligned {
        /// The address of the first element.
        address: usize,
        /// The alignment needed, in bytes.
        align: usize,
    },
    /// The elements are not contiguous in row-major order.
    NotContiguous {
        /// The outermost axis at fault.
        axis: usize,
        /// Its stride, in elements.
        stride: i64,
        /// The stride that it would have in a contiguous tensor.
        expected: i64,
    },
    /// Another language may write to the memory at any time.
    SharedMemory,
    /// The memory must not be written.
    ReadOnly,
    /// Two indices may reach the same element, so it cannot be borrowed mutably.
    Overlapping,
    /// Another number of axes than was asked for.
    RankMismatch {
        /// The number asked for.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// The extent of an axis does not match the target type.
    ExtentMismatch {
        /// Which axis.
        axis: usize,
        /// The extent found.
        found: i64,
        /// The extent expected.
        expected: usize,
    },
    /// An axis is too long for the target type.
    ExtentTooLarge {
        /// Which axis.
        axis: usize,
        /// The extent found.
        extent: i64,
        /// The largest extent of the target type.
        most: usize,
    },
    /// The target type cannot have the stride.
    StrideMismatch {
        /// Which axis.
        axis: usize,
        /// The stride found.
        stride: i64,
        /// The strides expected.
        expected: &'static str,
    },
    /// Another crate, named here, rejected the tensor.
    Refused {
        /// Which crate.
        by: &'static str,
        /// What it says.
        reason: String,
    },
    /// Another number of elements than was asked for.
    LengthMismatch {
        /// The number asked for.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// An index has another rank than the shape, or lies outside of it.
    IndexOutOfBounds {
        /// The index asked for.
        index: Box<[usize]>,
        /// The extents found.
        shape: Box<[i64]>,
    },
    /// The memory for a copy or a new tensor cannot be allocated.
    OutOfMemory {
        /// The size asked for, in bytes.
        size: usize,
    },
    /// Another number of bytes than the shape has.
    SizeMismatch {
        /// The number that the shape has.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// A chosen shape, stride or offset reaches past the owner's memory.
    OutOfBounds {
        /// Lowest byte reached, counted from the start of the owner's memory.
        low: isize,
        /// One past the highest byte reached.
        high: isize,
        /// Size of the owner's memory in bytes.
        size: usize,
    },
    /// A legacy descriptor cannot mark memory read-only.
    LegacyReadOnly,
    /// A legacy descriptor cannot mark elements narrower than a byte as padded.
    LegacyPadded {
        /// The type found.
        dtype: DType,
    },
    /// A property that the builder needs was not chosen.
    NotChosen {
        /// What is missing.
        what: &'static str,
    },
    /// A type or device name that is not known.
    UnknownName {
        /// What was to be named.
        what: &'static str,
        /// The name found.
        name: String,
    },
    /// Each number narrower than a byte has a byte of its own, where packed ones were asked for.
    PaddedElements {
        /// The type found.
        dtype: DType,
    },
    /// An operation that elements narrower than a byte do not have.
    PackedElements {
        /// The type found.
        dtype: DType,
    },
    /// The memory lies on another device than was asked for.
    DeviceMismatch {
        /// The device found.
        found: Device,
        /// The device asked for.
        expected: Device,
    },
    /// A device's driver is missing, or refuses.
    Driver {
        /// What it was to do.
        doing: &'static str,
        /// What it says.
        message: String,
    },
    /// No equivalent in the target type.
    NotConvertible {
        /// What it is.
        what: &'static str,
        /// What was found.
        found: String,
        /// What could be converted.
        expected: &'static str,
    },
    /// The tensor has no such part.
    Part(PartError),
    /// The elements have none of the types that are handled.
    DTypeNotIn {
        /// The type found.
        found: DType,
        /// The types handled.
        expected: &'static [DType],
    },
}

impl Error {
    /// The call that helps, in Rust: the end of the message. Other languages replace it.
    ///
    /// ```
    /// let help = dlbridge::Error::ReadOnly.help().expect("a copy helps");
    /// assert!(dlbridge::Error::ReadOnly.to_string().ends_with(help));
    /// ```
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Misaligned { .. } | Self::NotContiguous { .. } | Self::StrideMismatch { .. } => {
                "use view(), or copy with to_contiguous()"
            }
            Self::SharedMemory => {
                "use view(), copy with to_contiguous(), or vouch for it with an *_unchecked method"
            }
            Self::ReadOnly | Self::Overlapping => "copy with to_contiguous() to write",
            Self::LegacyReadOnly => "export with into_raw(), or copy with to_contiguous()",
            Self::LegacyPadded { .. } => "export with into_raw()",
            Self::NotChosen { .. } => "call the builder's method of this name",
            Self::PaddedElements { .. } => "read the bytes with as_bytes()",
            Self::Part(error) => return error.help(),
            _ => return None,
        })
    }

    /// Writes the message without the call that helps.
    fn problem(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NullTensor => f.write_str("managed tensor: expected one, found a null pointer"),
            Self::UnsupportedVersion { major, minor } => {
                write!(f, "version: expected 1.x, found {major}.{minor}")
            }
            Self::RankOutOfRange { ndim } => {
                write!(f, "ndim: expected 0 to {}, found {ndim}", crate::MAX_RANK)
            }
            Self::NullShape { ndim } => {
                write!(f, "shape: expected {ndim} extents, found a null pointer")
            }
            Self::NegativeExtent { axis, extent } => {
                write!(f, "shape: axis {axis}: expected extent 0 or more, found {extent}")
            }
            Self::SizeOverflow { what } => {
                write!(f, "shape: expected sizes that fit the address space, found a larger {what}")
            }
            Self::ImpossibleDType { dtype, reason } => write!(
                f,
                "dtype: expected a type that a tensor can have, \
                 found code {}, bits {}, lanes {}: {reason}",
                dtype.code.0, dtype.bits, dtype.lanes
            ),
            Self::NullData { len } => {
                write!(f, "data: expected {len} elements, found a null pointer")
            }
            Self::AddressOverflow { byte_offset } => {
                write!(f, "byte_offset: expected one within the address space, found {byte_offset}")
            }
            Self::DTypeMismatch { found, expected } => {
                write!(f, "dtype: expected {expected}, found {found}")
            }
            Self::NotHostAccessible { device } => {
                write!(f, "device: expected memory that the host can read, found {device}")
            }
            Self::Misaligned { address, align } => {
                write!(f, "data: expected a multiple of {align}, found address {address:#x}")
            }
            Self::NotContiguous { axis, stride, expected } => write!(
                f,
                "strides: axis {axis}: expected {expected} for contiguous memory, found {stride}"
            ),
            Self::SharedMemory => f.write_str(
                "access: expected memory that does not change, \
                 found shared memory, which another language may write",
            ),
            Self::ReadOnly => {
                f.write_str("access: expected writable memory, found read-only memory")
            }
            Self::Overlapping => f.write_str(
                "strides: expected one index for each element, \
                 found two that may reach the same element",
            ),
            Self::RankMismatch { expected, found } => {
                write!(f, "rank: expected {expected} axes, found {found}")
            }
            Self::ExtentMismatch { axis, found, expected } => {
                write!(f, "shape: axis {axis}: expected extent {expected}, found {found}")
            }
            Self::ExtentTooLarge { axis, extent, most } => {
                write!(f, "shape: axis {axis}: expected extent {most} or less, found {extent}")
            }
            Self::StrideMismatch { axis, stride, expected } => {
                write!(f, "strides: axis {axis}: expected {expected}, found {stride}")
            }
            Self::Refused { by, reason } => write!(f, "{by}: {reason}"),
            Self::LengthMismatch { expected, found } => {
                write!(f, "length: expected {expected} elements, found {found}")
            }
            Self::IndexOutOfBounds { index, shape } => {
                write!(f, "index: expected one inside the shape {shape:?}, found {index:?}")
            }
            Self::OutOfMemory { size } => write!(f, "memory: cannot allocate {size} bytes"),
            Self::SizeMismatch { expected, found } => {
                write!(f, "size: expected {expected} bytes for the shape, found {found}")
            }
            Self::OutOfBounds { low, high, size } => {
                write!(f, "shape: expected bytes in the owner's 0..{size}, found {low}..{high}")
            }
            Self::LegacyReadOnly => f.write_str(
                "version: expected 1.0 or newer, which marks memory read-only, \
                 found the legacy descriptor",
            ),
            Self::LegacyPadded { dtype } => write!(
                f,
                "version: expected 1.1 or newer, which marks padded {dtype} elements, \
                 found the legacy descriptor"
            ),
            Self::NotChosen { what } => write!(f, "{what}: expected one, found none chosen"),
            Self::UnknownName { what, name } => {
                write!(f, "{what}: expected a known name, found {name:?}")
            }
            Self::PackedElements { dtype } => write!(
                f,
                "dtype: expected elements that have an address, found packed {dtype} elements"
            ),
            Self::PaddedElements { dtype } => write!(
                f,
                "dtype: expected packed {dtype} elements, found a byte for each number \
                 (SUBBYTE_PADDED)"
            ),
            Self::DeviceMismatch { found, expected } => {
                write!(f, "device: expected {expected}, found {found}")
            }
            Self::Driver { doing, message } => write!(f, "driver: {doing}: {message}"),
            Self::NotConvertible { what, found, expected } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Part(error) => error.problem(f),
            Self::DTypeNotIn { found, expected } => {
                f.write_str("dtype: expected ")?;
                for (i, dtype) in expected.iter().enumerate() {
                    write!(f, "{}{dtype}", if i == 0 { "" } else { " or " })?;
                }
                write!(f, ", found {found}")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem(f)?;
        self.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}

impl std::error::Error for Error {}
