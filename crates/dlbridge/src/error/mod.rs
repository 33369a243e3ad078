//! The one error of this crate.
//! Turning it into another language's exceptions does not belong here.
//! Invariant: every variant carries the numbers that a user needs to mend the input.

mod descriptor;

use std::fmt;

use crate::{DType, Device};

pub use self::descriptor::DescriptorError;

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
    /// The descriptor is invalid, or no descriptor can describe the tensor.
    Descriptor(DescriptorError),
    /// The tensor has no such part: the axis, index or shape that was asked for does not fit it.
    ///
    /// ```
    /// use dlbridge::{Parts, Tensor};
    ///
    /// let error = Tensor::from([1, 2, 3]).view::<i32>()?.select(0, 5).unwrap_err();
    /// assert_eq!(error.to_string(), "expected an index below 3 on axis 0, found 5");
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    Part {
        /// What does not fit.
        kind: ErrorKind,
        /// The numbers expected and found.
        message: Box<str>,
    },
    /// The shape, or a number that it determines, does not match what was asked for.
    ShapeMismatch {
        /// Which number.
        field: ShapeField,
        /// The number expected.
        expected: usize,
        /// The number found.
        found: usize,
    },
    /// The elements have another type than was asked for.
    DTypeMismatch {
        /// The type found.
        found: DType,
        /// The type asked for.
        expected: DType,
    },
    /// The elements have none of the types that are handled.
    DTypeNotIn {
        /// The type found.
        found: DType,
        /// The types handled.
        expected: &'static [DType],
    },
    /// Elements narrower than a byte are stored in a way that the operation does not have.
    SubByte {
        /// The type found.
        dtype: DType,
        /// Whether each number has a byte of its own, where packed ones were asked for.
        padded: bool,
    },
    /// The memory lies on another device than was asked for.
    DeviceMismatch {
        /// The device found.
        found: Device,
        /// The device asked for.
        expected: Device,
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
    /// The target type cannot have the stride.
    StrideMismatch {
        /// Which axis.
        axis: usize,
        /// The stride found.
        stride: i64,
        /// The strides expected.
        expected: &'static str,
    },
    /// Two indices may reach the same element, so it cannot be borrowed mutably.
    Overlapping,
    /// Another language may write to the memory at any time.
    SharedMemory,
    /// The memory must not be written.
    ReadOnly,
    /// A legacy descriptor cannot mark memory read-only.
    LegacyReadOnly,
    /// A legacy descriptor cannot mark elements narrower than a byte as padded.
    LegacyPadded {
        /// The type found.
        dtype: DType,
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
    /// Another crate, a driver or the system, named here, rejected the tensor.
    Refused {
        /// Which crate, or `"driver"`.
        by: &'static str,
        /// What it says.
        reason: String,
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
    /// The memory for a copy or a new tensor cannot be allocated.
    OutOfMemory {
        /// The size asked for, in bytes.
        size: usize,
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
}

/// A number of a shape, in an [`Error::ShapeMismatch`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ShapeField {
    /// The number of axes.
    Ndim,
    /// The number of elements.
    Length,
    /// The number of bytes.
    Size,
    /// The extent of an axis.
    Extent {
        /// Which axis.
        axis: usize,
    },
    /// The extent of an axis, where the target type has a largest one.
    ExtentAtMost {
        /// Which axis.
        axis: usize,
    },
}

impl Error {
    /// What went wrong, without the numbers: one of a few kinds that code can branch on.
    ///
    /// ```
    /// use dlbridge::{Error, ErrorKind};
    ///
    /// let read_only_or_shared = [Error::ReadOnly, Error::SharedMemory];
    /// assert!(read_only_or_shared.iter().all(|error| error.kind() == ErrorKind::Access));
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Descriptor(_) => ErrorKind::InvalidDescriptor,
            Self::Part { kind, .. } => *kind,
            Self::ShapeMismatch { .. } => ErrorKind::Shape,
            Self::DTypeMismatch { .. } | Self::DTypeNotIn { .. } => ErrorKind::DType,
            Self::DeviceMismatch { .. } | Self::NotHostAccessible { .. } => ErrorKind::Device,
            Self::SubByte { .. }
            | Self::Misaligned { .. }
            | Self::NotContiguous { .. }
            | Self::StrideMismatch { .. }
            | Self::Overlapping => ErrorKind::Layout,
            Self::SharedMemory | Self::ReadOnly => ErrorKind::Access,
            Self::LegacyReadOnly | Self::LegacyPadded { .. } | Self::NotConvertible { .. } => {
                ErrorKind::Unsupported
            }
            Self::Refused { .. } => ErrorKind::Refused,
            Self::OutOfBounds { .. } => ErrorKind::OutOfBounds,
            Self::OutOfMemory { .. } => ErrorKind::OutOfMemory,
            Self::NotChosen { .. } => ErrorKind::Argument,
            Self::UnknownName { .. } => ErrorKind::UnknownName,
        }
    }

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
                "use view(), copy with to_contiguous(), or vouch for it with assume_frozen()"
            }
            Self::ReadOnly | Self::Overlapping => "copy with to_contiguous() to write",
            Self::LegacyReadOnly => "export with into_raw(), or copy with to_contiguous()",
            Self::LegacyPadded { .. } => "export with into_raw()",
            Self::NotChosen { .. } => "call the builder's method of this name",
            Self::SubByte { padded: true, .. } => "read the bytes with as_bytes()",
            Self::Part { kind: ErrorKind::Layout, .. } => "copy with to_contiguous() first",
            _ => return None,
        })
    }

    /// Panics for an error that checks made before exclude. (`expect` would compile `Debug` of every variant.)
    #[cold]
    pub(crate) fn impossible(self) -> ! {
        panic!("checked before, but {self}")
    }

    /// There is no such part.
    #[cold]
    pub(crate) fn part(kind: ErrorKind, message: fmt::Arguments<'_>) -> Self {
        Self::Part { kind, message: message.to_string().into() }
    }

    /// There is no such axis.
    pub(crate) fn axis(axis: usize, ndim: usize) -> Self {
        Self::part(ErrorKind::Index, format_args!("expected an axis below {ndim}, found {axis}"))
    }

    /// The shape has another number of axes.
    pub(crate) fn ndim(expected: usize, found: usize) -> Self {
        Self::ShapeMismatch { field: ShapeField::Ndim, expected, found }
    }

    /// An axis has another extent.
    pub(crate) fn extent(axis: usize, expected: usize, found: i64) -> Self {
        Self::ShapeMismatch {
            field: ShapeField::Extent { axis },
            expected,
            // An extent above a 32-bit usize is possible where there are no elements.
            found: usize::try_from(found).unwrap_or(usize::MAX),
        }
    }

    /// The target type has no such dtype.
    #[allow(dead_code, reason = "no adapter may be on that needs it")]
    pub(crate) fn other_dtype(found: impl fmt::Display, expected: &'static str) -> Self {
        Self::NotConvertible { what: "dtype", found: found.to_string(), expected }
    }

    /// Writes the message without the call that helps.
    fn problem(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptor(error) => fmt::Display::fmt(error, f),
            Self::Part { message, .. } => f.write_str(message),
            Self::ShapeMismatch { field, expected, found } => match field {
                ShapeField::Ndim => write!(f, "ndim: expected {expected}, found {found}"),
                ShapeField::Length => {
                    write!(f, "length: expected {expected} elements, found {found}")
                }
                ShapeField::Size => {
                    write!(f, "size: expected {expected} bytes for the shape, found {found}")
                }
                ShapeField::Extent { axis } => {
                    write!(f, "shape: axis {axis}: expected extent {expected}, found {found}")
                }
                ShapeField::ExtentAtMost { axis } => {
                    write!(
                        f,
                        "shape: axis {axis}: expected extent {expected} or less, found {found}"
                    )
                }
            },
            Self::DTypeMismatch { found, expected } => {
                write!(f, "dtype: expected {expected}, found {found}")
            }
            Self::DTypeNotIn { found, expected } => {
                f.write_str("dtype: expected ")?;
                for (i, dtype) in expected.iter().enumerate() {
                    write!(f, "{}{dtype}", if i == 0 { "" } else { " or " })?;
                }
                write!(f, ", found {found}")
            }
            Self::SubByte { dtype, padded: false } => write!(
                f,
                "dtype: expected elements that have an address, found packed {dtype} elements"
            ),
            Self::SubByte { dtype, padded: true } => write!(
                f,
                "dtype: expected packed {dtype} elements, found a byte for each number \
                 (SUBBYTE_PADDED)"
            ),
            Self::DeviceMismatch { found, expected } => {
                write!(f, "device: expected {expected}, found {found}")
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
            Self::StrideMismatch { axis, stride, expected } => {
                write!(f, "strides: axis {axis}: expected {expected}, found {stride}")
            }
            Self::Overlapping => f.write_str(
                "strides: expected one index for each element, \
                 found two that may reach the same element",
            ),
            Self::SharedMemory => f.write_str(
                "access: expected memory that does not change, \
                 found shared memory, which another language may write",
            ),
            Self::ReadOnly => {
                f.write_str("access: expected writable memory, found read-only memory")
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
            Self::NotConvertible { what, found, expected } => {
                write!(f, "{what}: expected {expected}, found {found}")
            }
            Self::Refused { by, reason } => write!(f, "{by}: {reason}"),
            Self::OutOfBounds { low, high, size } => {
                write!(f, "shape: expected bytes in the owner's 0..{size}, found {low}..{high}")
            }
            Self::OutOfMemory { size } => write!(f, "memory: cannot allocate {size} bytes"),
            Self::NotChosen { what } => write!(f, "{what}: expected one, found none chosen"),
            Self::UnknownName { what, name } => {
                write!(f, "{what}: expected a known name, found {name:?}")
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

impl From<DescriptorError> for Error {
    fn from(error: DescriptorError) -> Self {
        Self::Descriptor(error)
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfMemory { .. } => Self::new(std::io::ErrorKind::OutOfMemory, error),
            error => Self::other(error),
        }
    }
}

// The causes of errors, without their numbers.

/// What went wrong, for code that branches: [`Error::kind`](crate::Error::kind).
///
/// ```
/// use dlbridge::{ErrorKind, Tensor};
///
/// let tensor = Tensor::from(vec![1_i32, 2, 3]);
/// let error = tensor.as_slice::<f32>().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::DType);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A descriptor breaks a rule of DLPack, or none can describe the tensor.
    InvalidDescriptor,
    /// The elements have another type.
    DType,
    /// The shape, or a number that it determines, does not match.
    Shape,
    /// No such axis or element.
    Index,
    /// A range, shape, stride or offset reaches past its axis or memory.
    OutOfBounds,
    /// The strides, the alignment or the packing does not match: a copy helps.
    Layout,
    /// The memory is read-only, or shared with code that may write.
    Access,
    /// The memory lies on another device.
    Device,
    /// The target type, or the legacy ABI, has no equivalent.
    Unsupported,
    /// Another crate, a driver or the system rejected the tensor.
    Refused,
    /// The memory cannot be allocated.
    OutOfMemory,
    /// No type, device or tensor has this name.
    UnknownName,
    /// An argument that no tensor accepts, or that is missing.
    Argument,
}
