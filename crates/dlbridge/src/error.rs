//! The one error of this crate.
//! Turning it into another language's exceptions does not belong here.
//! Invariant: every variant carries the numbers that a user needs to mend the input.

use std::fmt;

use crate::{DType, Device, PartError};

/// Why a tensor was refused, or cannot be used the way it was asked for.
///
/// Messages say where, what was found and what was wanted:
///
/// ```
/// use dlbridge::Tensor;
///
/// let tensor = Tensor::from(vec![1_i32, 2, 3]);
/// let error = tensor.as_slice::<f32>().unwrap_err();
/// assert_eq!(error.to_string(), "dtype: found int32, wanted float32");
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
        wanted: DType,
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
    /// The elements do not lie side by side in row-major order.
    NotContiguous {
        /// The outermost axis at fault.
        axis: usize,
        /// Its stride, in elements.
        stride: i64,
        /// The stride that it would have in a contiguous tensor.
        wanted: i64,
    },
    /// Another language may write to the memory at any time.
    SharedMemory,
    /// The memory must not be written.
    ReadOnly,
    /// Two indices may reach the same element, so it cannot be lent mutably.
    Overlapping,
    /// Another number of axes than was asked for.
    RankMismatch {
        /// The number asked for.
        wanted: usize,
        /// The number found.
        found: usize,
    },
    /// An axis has another extent than what it is to become.
    ExtentMismatch {
        /// Which axis.
        axis: usize,
        /// The extent found.
        found: i64,
        /// The extent wanted.
        wanted: usize,
    },
    /// An axis is longer than what it is to become can be.
    ExtentTooLarge {
        /// Which axis.
        axis: usize,
        /// The extent found.
        extent: i64,
        /// The largest that can be.
        most: usize,
    },
    /// A stride that what it is to become cannot have.
    StrideMismatch {
        /// Which axis.
        axis: usize,
        /// The stride found.
        stride: i64,
        /// The strides wanted.
        wanted: &'static str,
    },
    /// Another crate, named here, refuses what it was given.
    Refused {
        /// Which crate.
        by: &'static str,
        /// What it says.
        reason: String,
    },
    /// Another number of elements than was asked for.
    LengthMismatch {
        /// The number asked for.
        wanted: usize,
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
    /// There is no memory for a copy or a new tensor of this size.
    OutOfMemory {
        /// The size asked for, in bytes.
        size: usize,
    },
    /// Another number of bytes than the shape has.
    SizeMismatch {
        /// The number that the shape has.
        wanted: usize,
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
    /// The descriptor of DLPack before 1.0 cannot say read-only.
    LegacyReadOnly,
    /// The descriptor of DLPack before 1.0 cannot say that narrow elements have a byte each.
    LegacyPadded {
        /// The type found.
        dtype: DType,
    },
    /// An export needs something that was not chosen.
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
        wanted: Device,
    },
    /// A device's driver is missing, or refuses.
    Driver {
        /// What it was to do.
        doing: &'static str,
        /// What it says.
        message: String,
    },
    /// Something that one side of a conversion has and the other cannot have.
    NotConvertible {
        /// What it is.
        what: &'static str,
        /// What was found.
        found: String,
        /// What could be converted.
        wanted: &'static str,
    },
    /// The tensor has no such part.
    Part(PartError),
    /// The elements have none of the types that are handled.
    DTypeNotIn {
        /// The type found.
        found: DType,
        /// The types handled.
        wanted: &'static [DType],
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NullTensor => f.write_str("managed tensor: found a null pointer"),
            Self::UnsupportedVersion { major, minor } => {
                write!(f, "version: found {major}.{minor}, wanted 1.x")
            }
            Self::RankOutOfRange { ndim } => {
                write!(f, "ndim: found {ndim}, wanted 0 to {}", crate::MAX_RANK)
            }
            Self::NullShape { ndim } => {
                write!(f, "shape: found a null pointer, wanted {ndim} extents")
            }
            Self::NegativeExtent { axis, extent } => {
                write!(f, "shape: axis {axis} has extent {extent}, wanted 0 or more")
            }
            Self::SizeOverflow { what } => {
                write!(f, "shape: the {what} does not fit the address space")
            }
            Self::ImpossibleDType { dtype, reason } => write!(
                f,
                "dtype: found code {}, bits {}, lanes {}: {reason}",
                dtype.code.0, dtype.bits, dtype.lanes
            ),
            Self::NullData { len } => {
                write!(f, "data: found a null pointer, wanted {len} elements")
            }
            Self::AddressOverflow { byte_offset } => {
                write!(f, "byte_offset: {byte_offset} leads outside the address space")
            }
            Self::DTypeMismatch { found, wanted } => {
                write!(f, "dtype: found {found}, wanted {wanted}")
            }
            Self::NotHostAccessible { device } => {
                write!(f, "device: found {device}, wanted memory that the host can read")
            }
            Self::Misaligned { address, align } => write!(
                f,
                "data: address {address:#x} is not a multiple of {align}; use a view, or copy"
            ),
            Self::NotContiguous { axis, stride, wanted } => write!(
                f,
                "strides: axis {axis} has stride {stride}, wanted {wanted} for a slice; \
                 use a view, or copy"
            ),
            Self::SharedMemory => f.write_str(
                "access: another language may write to this memory; \
                 use view(), copy with to_contiguous(), or vouch for it with an *_unchecked method",
            ),
            Self::ReadOnly => {
                f.write_str("access: the memory is read-only; copy with to_contiguous() to write")
            }
            Self::Overlapping => f.write_str(
                "strides: two indices may reach the same element; copy with to_contiguous() to write",
            ),
            Self::RankMismatch { wanted, found } => {
                write!(f, "rank: found {found} axes, wanted {wanted}")
            }
            Self::ExtentMismatch { axis, found, wanted } => {
                write!(f, "shape: axis {axis} has extent {found}, wanted {wanted}")
            }
            Self::ExtentTooLarge { axis, extent, most } => {
                write!(f, "shape: axis {axis} has extent {extent}, wanted {most} or less")
            }
            Self::StrideMismatch { axis, stride, wanted } => write!(
                f,
                "strides: axis {axis} has stride {stride}, wanted {wanted}; use a view, or copy"
            ),
            Self::Refused { by, reason } => write!(f, "{by}: {reason}"),
            Self::LengthMismatch { wanted, found } => {
                write!(f, "length: found {found} elements, wanted {wanted}")
            }
            Self::IndexOutOfBounds { index, shape } => {
                write!(f, "index: found {index:?}, wanted one inside the shape {shape:?}")
            }
            Self::OutOfMemory { size } => write!(f, "memory: found none for {size} bytes"),
            Self::SizeMismatch { wanted, found } => {
                write!(f, "size: found {found} bytes, wanted {wanted} for the shape")
            }
            Self::OutOfBounds { low, high, size } => {
                write!(f, "shape: reaches bytes {low}..{high} of an owner that has {size} bytes")
            }
            Self::LegacyReadOnly => f.write_str(
                "version: a descriptor older than DLPack 1.0 cannot mark memory read-only; \
                 ask for version 1.0 or newer, or copy",
            ),
            Self::LegacyPadded { dtype } => write!(
                f,
                "version: a descriptor older than DLPack 1.0 cannot say that each {dtype} has a \
                 byte of its own; ask for version 1.1 or newer"
            ),
            Self::NotChosen { what } => write!(f, "{what}: found none, wanted one to be chosen"),
            Self::UnknownName { what, name } => write!(f, "{what}: no such name: {name:?}"),
            Self::PackedElements { dtype } => {
                write!(f, "dtype: {dtype} elements are narrower than a byte and have no address")
            }
            Self::PaddedElements { dtype } => write!(
                f,
                "dtype: expected packed {dtype} elements, found a byte for each number \
                 (SUBBYTE_PADDED); read the bytes with as_bytes()"
            ),
            Self::DeviceMismatch { found, wanted } => {
                write!(f, "device: found {found}, wanted {wanted}")
            }
            Self::Driver { doing, message } => write!(f, "driver: {doing}: {message}"),
            Self::NotConvertible { what, found, wanted } => {
                write!(f, "{what}: found {found}, wanted {wanted}")
            }
            Self::Part(error) => error.fmt(f),
            Self::DTypeNotIn { found, wanted } => {
                f.write_str("dtype: expected ")?;
                for (i, dtype) in wanted.iter().enumerate() {
                    write!(f, "{}{dtype}", if i == 0 { "" } else { " or " })?;
                }
                write!(f, ", found {found}")
            }
        }
    }
}

impl std::error::Error for Error {}
