//! Why a tensor has no such part.

use std::fmt;

use super::ErrorKind;

/// Why a tensor has no such part: the axis, index or shape that was asked for does not fit it.
///
/// ```
/// use dlbridge::{Parts, Tensor};
///
/// let tensor = Tensor::from([1, 2, 3]);
/// let error = tensor.view::<i32>()?.select(0, 5).unwrap_err();
/// assert_eq!(error.to_string(), "expected an index below 3 on axis 0, found 5");
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PartError {
    /// There is no such axis.
    Axis {
        /// The axis asked for.
        axis: usize,
        /// How many there are to choose from.
        rank: usize,
    },
    /// An axis has no such index.
    Index {
        /// Which axis.
        axis: usize,
        /// The index asked for.
        index: usize,
        /// The axis's extent.
        extent: i64,
    },
    /// An index of an element has another rank than the shape, or lies outside of it.
    Element {
        /// The index asked for.
        index: Box<[usize]>,
        /// The extents found.
        shape: Box<[i64]>,
    },
    /// A range does not lie within an axis, or ends before it starts.
    Range {
        /// Which axis.
        axis: usize,
        /// The first index of the range.
        start: usize,
        /// One past its last index.
        end: usize,
        /// The axis's extent.
        extent: i64,
    },
    /// A step of zero.
    ZeroStep {
        /// Which axis.
        axis: usize,
    },
    /// An order of axes that does not name each axis once.
    Axes {
        /// The order asked for.
        axes: Box<[usize]>,
        /// How many axes there are.
        rank: usize,
    },
    /// An axis to be left out has more or fewer elements than one.
    Squeeze {
        /// Which axis.
        axis: usize,
        /// Its extent.
        extent: i64,
    },
    /// A shape with another number of elements.
    Reshape {
        /// The tensor's shape.
        shape: Box<[i64]>,
        /// The shape asked for.
        expected: Box<[i64]>,
    },
    /// No strides give these elements another shape: they must be copied first.
    ReshapeCopies {
        /// The tensor's shape.
        shape: Box<[i64]>,
        /// Its strides.
        strides: Box<[i64]>,
        /// The shape asked for.
        expected: Box<[i64]>,
    },
    /// A shape that repeating axes of extent 1 does not lead to.
    Broadcast {
        /// The tensor's shape.
        shape: Box<[i64]>,
        /// The shape asked for.
        expected: Box<[i64]>,
    },
    /// Views of different shapes, which have no elements in pairs.
    Shapes {
        /// The one's shape.
        shape: Box<[i64]>,
        /// The other's.
        other: Box<[i64]>,
    },
    /// Pieces of no length.
    EmptyPieces {
        /// Which axis.
        axis: usize,
    },
}

impl PartError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Axis { .. } | Self::Index { .. } | Self::Element { .. } => ErrorKind::Index,
            Self::Range { .. } => ErrorKind::OutOfBounds,
            Self::ZeroStep { .. } | Self::Axes { .. } | Self::EmptyPieces { .. } => {
                ErrorKind::Argument
            }
            Self::Squeeze { .. }
            | Self::Reshape { .. }
            | Self::ReshapeCopies { .. }
            | Self::Broadcast { .. }
            | Self::Shapes { .. } => ErrorKind::Shape,
        }
    }

    pub(crate) fn help(&self) -> Option<&'static str> {
        match self {
            Self::Squeeze { .. } => Some("use select() for one index"),
            Self::ReshapeCopies { .. } => Some("copy with to_contiguous() first"),
            _ => None,
        }
    }

    /// Writes the message without the call that helps.
    pub(crate) fn problem(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Axis { axis, rank } => write!(f, "expected an axis below {rank}, found {axis}"),
            Self::Index { axis, index, extent } => {
                write!(f, "expected an index below {extent} on axis {axis}, found {index}")
            }
            Self::Element { index, shape } => {
                write!(f, "index: expected one inside the shape {shape:?}, found {index:?}")
            }
            Self::Range { axis, start, end, extent } => {
                write!(
                    f,
                    "expected a range within 0..{extent} on axis {axis}, found {start}..{end}"
                )
            }
            Self::ZeroStep { axis } => {
                write!(f, "expected a step other than 0 on axis {axis}, found 0")
            }
            Self::Axes { axes, rank } => {
                write!(f, "expected each axis below {rank} once, found {axes:?}")
            }
            Self::Squeeze { axis, extent } => {
                write!(f, "expected extent 1 on axis {axis}, found {extent}")
            }
            Self::Reshape { shape, expected } => {
                write!(f, "expected a shape with the elements of {shape:?}, found {expected:?}")
            }
            Self::ReshapeCopies { shape, strides, expected } => write!(
                f,
                "expected strides that allow shape {expected:?} without a copy, found {strides:?} \
                 for shape {shape:?}"
            ),
            Self::Broadcast { shape, expected } => {
                write!(f, "expected a shape that {shape:?} can be repeated to, found {expected:?}")
            }
            Self::Shapes { shape, other } => {
                write!(f, "expected views of one shape, found {shape:?} and {other:?}")
            }
            Self::EmptyPieces { axis } => {
                write!(f, "expected pieces of one index or more on axis {axis}, found 0")
            }
        }
    }
}

impl fmt::Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem(f)?;
        self.help().map_or(Ok(()), |help| write!(f, "; {help}"))
    }
}
