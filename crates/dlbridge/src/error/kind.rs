//! The causes of errors, without their numbers.

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
