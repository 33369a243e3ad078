//! The kinds of parameters, the values of scalars, and the conversions of dtypes that keep values.

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

/// The bits of a value that a conversion of elements may lose: of its digits, and of a float's exponent; `None` where it
/// changes more than that, as a float that becomes an integer.
pub(crate) fn lost_bits(from: DType, to: DType) -> Option<u32> {
    let is_complex = |dtype: DType| matches!(dtype.code, TypeCode::COMPLEX | TypeCode::BCOMPLEX);
    if is_complex(from) && !is_complex(to) {
        return None;
    }
    let (from, to) = (Digits::of(from)?, Digits::of(to)?);
    match (from.exponent, to.exponent) {
        (None, None) => {
            let fits = from.count <= to.count && (to.is_signed || !from.is_signed);
            fits.then_some(0)
        }
        (None, Some(_)) => Some(from.count.saturating_sub(to.count)),
        (Some(_), None) => None,
        (Some(own), Some(other)) => {
            Some(from.count.saturating_sub(to.count) + own.saturating_sub(other))
        }
    }
}

/// Whether a number, or each part of a complex one, has 64 bits.
pub(crate) fn is_of_64_bits(dtype: DType) -> bool {
    dtype.bits == if dtype.code == TypeCode::COMPLEX { 128 } else { 64 }
}

/// The binary digits of a number, or of each part of a complex one.
struct Digits {
    count: u32,
    is_signed: bool,
    /// The bits of a float's exponent.
    exponent: Option<u32>,
}

impl Digits {
    fn of(DType { code, bits, lanes }: DType) -> Option<Self> {
        let float =
            |count, exponent| Some(Self { count, is_signed: true, exponent: Some(exponent) });
        let bits = u32::from(bits);
        match (code, bits) {
            _ if lanes != 1 => None,
            (TypeCode::BOOL, _) => Some(Self { count: 1, is_signed: false, exponent: None }),
            (TypeCode::UINT, _) => Some(Self { count: bits, is_signed: false, exponent: None }),
            (TypeCode::INT, _) => Some(Self { count: bits - 1, is_signed: true, exponent: None }),
            (TypeCode::FLOAT, 16) | (TypeCode::COMPLEX, 32) => float(11, 5),
            (TypeCode::FLOAT, 32) | (TypeCode::COMPLEX, 64) => float(24, 8),
            (TypeCode::FLOAT, 64) | (TypeCode::COMPLEX, 128) => float(53, 11),
            (TypeCode::BFLOAT, 16) | (TypeCode::BCOMPLEX, 32) => float(8, 8),
            // The most that any of the narrow floats has.
            _ if code.fixed_bits().is_some() => float(5, 8),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_loses_bits_or_more() {
        for (from, to, expected) in [
            (DType::BF16, DType::I32, None),
            (DType::BF16, DType::F16, Some(3)),
            (DType::BF16, DType::F32, Some(0)),
            (DType::FLOAT8_E4M3FN, DType::F32, Some(0)),
            (DType::F64, DType::F32, Some(32)),
            (DType::I64, DType::F64, Some(10)),
            (DType::I64, DType::I32, None),
            (DType::U8, DType::I16, Some(0)),
            (DType::I8, DType::U16, None),
            (DType::U64, DType::I64, None),
            (DType::BOOL, DType::U8, Some(0)),
            (DType::I32, DType::BOOL, None),
            (DType::F32, DType::COMPLEX64, Some(0)),
            (DType::COMPLEX64, DType::F32, None),
            (DType::BCOMPLEX32, DType::COMPLEX64, Some(0)),
            (DType::F32.with_lanes(2), DType::F32, None),
        ] {
            assert_eq!(lost_bits(from, to), expected, "{from} {to}");
        }
    }
}
