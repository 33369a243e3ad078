//! Why a descriptor is invalid.

use std::fmt;

use crate::DType;

/// Why a descriptor is invalid: one that was imported, or the one that a new tensor needs.
///
/// ```
/// use dlbridge::{DType, DescriptorError, Error, Tensor};
///
/// let error = Tensor::zeros(DType::F32, [2, -1]).unwrap_err();
/// let negative = DescriptorError::NegativeExtent { axis: 1, extent: -1 };
/// assert_eq!(error, Error::Descriptor(negative));
/// assert_eq!(error.to_string(), "shape: axis 1: expected extent 0 or more, found -1");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DescriptorError {
    /// A pointer to a whole managed tensor is null.
    NullTensor,
    /// The descriptor was made for another major version of DLPack.
    UnsupportedVersion {
        /// Major version found.
        major: u32,
        /// Minor version found.
        minor: u32,
    },
    /// `ndim` is negative or above [`MAX_NDIM`](crate::MAX_NDIM).
    NdimOutOfRange {
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
    /// `data` is null although there are elements, or below 64 KiB in host memory, where no memory
    /// is.
    NullData {
        /// How many elements there should be.
        len: usize,
    },
    /// `data + byte_offset`, or an element's address, lies outside the address space.
    AddressOverflow {
        /// The byte offset found.
        byte_offset: u64,
    },
}

impl fmt::Display for DescriptorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NullTensor => f.write_str("managed tensor: expected one, found a null pointer"),
            Self::UnsupportedVersion { major, minor } => {
                write!(f, "version: expected 1.x, found {major}.{minor}")
            }
            Self::NdimOutOfRange { ndim } => {
                write!(f, "ndim: expected 0 to {}, found {ndim}", crate::MAX_NDIM)
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
        }
    }
}
