//! The kinds of parameters, and the values of scalars.

use dlbridge::{DType, TypeCode};

/// The kinds of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A tensor to read: `View`.
    Input(DType),
    /// A tensor to read that may be absent: `Option<View<T>>`.
    Optional(DType),
    /// A tensor of the caller to change: `InPlace`.
    InPlace(DType),
    /// A tensor to fill, which the framework allocates: `ViewMut`.
    Output(DType),
    /// A number: `f64`.
    Float,
    /// An integer: `i64`.
    Int,
    /// A truth value: `bool`.
    Bool,
}

impl Kind {
    /// Its place among the parameters: 0 for tensors, 1 for scalars, 2 for tensors to fill.
    pub(crate) const fn group(self) -> usize {
        match self {
            Self::Input(_) | Self::Optional(_) | Self::InPlace(_) => 0,
            Self::Float | Self::Int | Self::Bool => 1,
            Self::Output(_) => 2,
        }
    }

    /// Whether it is of the same kind, of whatever dtype.
    pub(crate) const fn is_like(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Input(_), Self::Input(_))
                | (Self::Optional(_), Self::Optional(_))
                | (Self::InPlace(_), Self::InPlace(_))
                | (Self::Output(_), Self::Output(_))
                | (Self::Float, Self::Float)
                | (Self::Int, Self::Int)
                | (Self::Bool, Self::Bool)
        )
    }

    /// Whether the caller passes a tensor for it.
    pub(crate) const fn is_tensor(self) -> bool {
        matches!(self, Self::Input(_) | Self::Optional(_) | Self::InPlace(_))
    }

    pub(crate) const fn is_scalar(self) -> bool {
        matches!(self, Self::Float | Self::Int | Self::Bool)
    }

    pub(crate) const fn is_optional(self) -> bool {
        matches!(self, Self::Optional(_))
    }

    pub(crate) const fn is_in_place(self) -> bool {
        matches!(self, Self::InPlace(_))
    }

    /// The dtype of a tensor that the caller passes.
    pub(crate) fn input(self) -> Option<DType> {
        match self {
            Self::Input(dtype) | Self::Optional(dtype) | Self::InPlace(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// The dtype of a tensor to fill.
    pub(crate) fn output(self) -> Option<DType> {
        if let Self::Output(dtype) = self { Some(dtype) } else { None }
    }

    /// The dtype of the elements, or of the scalar.
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Input(dtype) | Self::Optional(dtype) | Self::InPlace(dtype) => dtype,
            Self::Output(dtype) => dtype,
            Self::Float => DType::F64,
            Self::Int => DType::I64,
            Self::Bool => DType::BOOL,
        }
    }

    /// The name that the Python half has for it; `None` for a result.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Input(_) => Some("tensor"),
            Self::Optional(_) => Some("optional"),
            Self::InPlace(_) => Some("in place"),
            Self::Output(_) => None,
            Self::Float => Some("float"),
            Self::Int => Some("int"),
            Self::Bool => Some("bool"),
        }
    }
}

/// A scalar argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar {
    Float(f64),
    Int(i64),
    Bool(bool),
}

/// Whether a number, or each part of a complex one, has 64 bits.
pub(crate) fn is_of_64_bits(dtype: DType) -> bool {
    dtype.bits == if dtype.code == TypeCode::COMPLEX { 128 } else { 64 }
}
