//! Element types: a type code, a width in bits and a lane count, as plain numbers. Every value can be
//! stored; an unknown type fails only when its elements are accessed.

use std::fmt;

use dlbridge_sys::{DLDataType, DLDataTypeCode};

/// The kind of number an element is: DLPack's `DLDataTypeCode`, kept as a number so that a newer
/// producer's code can be carried.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(transparent)]
pub struct TypeCode(pub u8);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $word:literal, $bits:expr;)*) => {
        impl TypeCode {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The word for this code, without a width: `"float"`, `"float8_e4m3fn"`; `None` for a
            /// code that DLPack does not name.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($word),)*
                    _ => None,
                }
            }

            /// The one width in bits that this code can have, for codes whose name fixes it.
            #[must_use]
            pub const fn fixed_bits(self) -> Option<u8> {
                match self.0 {
                    $($code => $bits,)*
                    _ => None,
                }
            }

            /// Every code that DLPack names.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

codes! {
    /// Signed integers.
    INT = 0, "int", None;
    /// Unsigned integers.
    UINT = 1, "uint", None;
    /// IEEE floating point.
    FLOAT = 2, "float", None;
    /// A handle that is meaningful only to its producer.
    OPAQUE_HANDLE = 3, "opaque", None;
    /// Brain floating point.
    BFLOAT = 4, "bfloat", None;
    /// Complex numbers; the width covers both parts.
    COMPLEX = 5, "complex", None;
    /// Truth values, one byte each.
    BOOL = 6, "bool", None;
    /// 8-bit float, 3 exponent and 4 mantissa bits.
    FLOAT8_E3M4 = 7, "float8_e3m4", Some(8);
    /// 8-bit float, 4 exponent and 3 mantissa bits, with infinities.
    FLOAT8_E4M3 = 8, "float8_e4m3", Some(8);
    /// 8-bit float, 4 exponent and 3 mantissa bits, bias 11, finite, no negative zero.
    FLOAT8_E4M3B11FNUZ = 9, "float8_e4m3b11fnuz", Some(8);
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite.
    FLOAT8_E4M3FN = 10, "float8_e4m3fn", Some(8);
    /// 8-bit float, 4 exponent and 3 mantissa bits, finite, no negative zero.
    FLOAT8_E4M3FNUZ = 11, "float8_e4m3fnuz", Some(8);
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    FLOAT8_E5M2 = 12, "float8_e5m2", Some(8);
    /// 8-bit float, 5 exponent and 2 mantissa bits, finite, no negative zero.
    FLOAT8_E5M2FNUZ = 13, "float8_e5m2fnuz", Some(8);
    /// 8-bit power of two: 8 exponent bits, no sign.
    FLOAT8_E8M0FNU = 14, "float8_e8m0fnu", Some(8);
    /// 6-bit float, 2 exponent and 3 mantissa bits.
    FLOAT6_E2M3FN = 15, "float6_e2m3fn", Some(6);
    /// 6-bit float, 3 exponent and 2 mantissa bits.
    FLOAT6_E3M2FN = 16, "float6_e3m2fn", Some(6);
    /// 4-bit float, 2 exponent bits and 1 mantissa bit.
    FLOAT4_E2M1FN = 17, "float4_e2m1fn", Some(4);
    /// Complex numbers of two brain floats; the width covers both parts. Added to DLPack after
    /// 1.3 without a new version number.
    BCOMPLEX = 18, "bcomplex", None;
}

/// The type of one element: DLPack's `DLDataType`.
///
/// ```
/// use dlbridge::DType;
///
/// assert_eq!(DType::F32.to_string(), "float32");
/// assert_eq!("bfloat16".parse::<DType>()?, DType::BF16);
/// assert_eq!(DType::F32.with_lanes(4).to_string(), "float32x4");
/// assert_eq!(DType::FLOAT4_E2M1FN.itemsize(), None);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct DType {
    /// What kind of number.
    pub code: TypeCode,
    /// Width of one lane, in bits.
    pub bits: u8,
    /// Numbers in one element; 1 for anything but a vector type.
    pub lanes: u16,
}

macro_rules! dtypes {
    ($($name:ident = $code:ident, $bits:literal;)*) => {
        impl DType {
            $(
                #[doc = concat!("Code [`", stringify!($code), "`](TypeCode::", stringify!($code),
                                "), ", stringify!($bits), " bits.")]
                pub const $name: Self = Self::new(TypeCode::$code, $bits);
            )*

            /// Every named type, in the order of the codes.
            pub const NAMED: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

dtypes! {
    I8 = INT, 8;
    I16 = INT, 16;
    I32 = INT, 32;
    I64 = INT, 64;
    I128 = INT, 128;
    U8 = UINT, 8;
    U16 = UINT, 16;
    U32 = UINT, 32;
    U64 = UINT, 64;
    U128 = UINT, 128;
    F16 = FLOAT, 16;
    F32 = FLOAT, 32;
    F64 = FLOAT, 64;
    BF16 = BFLOAT, 16;
    COMPLEX32 = COMPLEX, 32;
    COMPLEX64 = COMPLEX, 64;
    COMPLEX128 = COMPLEX, 128;
    BOOL = BOOL, 8;
    FLOAT8_E3M4 = FLOAT8_E3M4, 8;
    FLOAT8_E4M3 = FLOAT8_E4M3, 8;
    FLOAT8_E4M3B11FNUZ = FLOAT8_E4M3B11FNUZ, 8;
    FLOAT8_E4M3FN = FLOAT8_E4M3FN, 8;
    FLOAT8_E4M3FNUZ = FLOAT8_E4M3FNUZ, 8;
    FLOAT8_E5M2 = FLOAT8_E5M2, 8;
    FLOAT8_E5M2FNUZ = FLOAT8_E5M2FNUZ, 8;
    FLOAT8_E8M0FNU = FLOAT8_E8M0FNU, 8;
    FLOAT6_E2M3FN = FLOAT6_E2M3FN, 6;
    FLOAT6_E3M2FN = FLOAT6_E3M2FN, 6;
    FLOAT4_E2M1FN = FLOAT4_E2M1FN, 4;
    BCOMPLEX32 = BCOMPLEX, 32;
}

impl DType {
    /// All fields in one number, of which `match_dtype!` makes one jump where it has many types.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn word(self) -> u32 {
        (self.lanes as u32) << 16 | (self.bits as u32) << 8 | self.code.0 as u32
    }

    /// A type of one lane.
    #[must_use]
    pub const fn new(code: TypeCode, bits: u8) -> Self {
        Self { code, bits, lanes: 1 }
    }

    /// The same type with `lanes` numbers in each element.
    #[must_use]
    pub const fn with_lanes(self, lanes: u16) -> Self {
        Self { lanes, ..self }
    }

    /// Width of one element in bits, all lanes together.
    #[must_use]
    pub const fn element_bits(self) -> u32 {
        self.bits as u32 * self.lanes as u32
    }

    /// Size of one element in bytes, or `None` when elements are packed below the byte
    /// (4-bit and 6-bit types).
    #[must_use]
    pub const fn itemsize(self) -> Option<usize> {
        let bits = self.element_bits();
        if self.bits < 8 && bits % 8 != 0 { None } else { Some(bits.div_ceil(8) as usize) }
    }

    /// Whether one element is one number, or one complex pair, of whole bytes, under a code that
    /// fixes no width: nearly all types in use, whose size is `bits / 8` bytes.
    #[inline]
    pub(crate) const fn is_ordinary(self) -> bool {
        self.code.0 <= TypeCode::BOOL.0 && self.lanes == 1 && self.bits % 8 == 0 && self.bits != 0
    }

    /// The reason why no tensor can have this type; `None` if one can. Unknown codes are possible types.
    pub(crate) const fn impossible(self) -> Option<&'static str> {
        if self.bits == 0 {
            return Some("bits is 0");
        }
        if self.lanes == 0 {
            return Some("lanes is 0");
        }
        match self.code.fixed_bits() {
            Some(bits) if bits != self.bits => Some("the code's name fixes another width"),
            _ => None,
        }
    }
}

impl From<DLDataType> for DType {
    #[inline]
    fn from(DLDataType { code, bits, lanes }: DLDataType) -> Self {
        Self { code: TypeCode(code.0), bits, lanes }
    }
}

impl From<DType> for DLDataType {
    #[inline]
    fn from(DType { code, bits, lanes }: DType) -> Self {
        Self { code: DLDataTypeCode(code.0), bits, lanes }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, bits, lanes } = *self;
        match code.name() {
            Some(name) if code.fixed_bits() == Some(bits) => f.write_str(name)?,
            Some(name) if code == TypeCode::BOOL && bits == 8 => f.write_str(name)?,
            Some(name) if is_width(bits) || code.fixed_bits().is_some() => {
                write!(f, "{name}{bits}")?;
            }
            _ => write!(f, "code{}:{bits}", code.0)?,
        }
        if lanes == 1 { Ok(()) } else { write!(f, "x{lanes}") }
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DType({self})")
    }
}

/// Whether a name may have this width: a power of two, or fewer bits than a byte.
pub(crate) const fn is_width(bits: u8) -> bool {
    bits.is_power_of_two() || bits < 8 && bits != 0
}

impl DType {
    /// The bits of a value that a conversion of elements may lose: of its digits, and of a float's exponent. `None` where
    /// it changes more than that, as a float that becomes an integer.
    ///
    /// ```
    /// use dlbridge::DType;
    ///
    /// assert_eq!(DType::F32.lost_bits(DType::F64), Some(0));
    /// assert_eq!(DType::I64.lost_bits(DType::F64), Some(10)); // of the 63 digits
    /// assert_eq!(DType::F64.lost_bits(DType::I64), None);
    /// ```
    #[must_use]
    pub fn lost_bits(self, to: Self) -> Option<u32> {
        let is_complex = |dtype: Self| matches!(dtype.code, TypeCode::COMPLEX | TypeCode::BCOMPLEX);
        if is_complex(self) && !is_complex(to) {
            return None;
        }
        let (from, to) = (Digits::of(self)?, Digits::of(to)?);
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

// `match_dtype!`: one body for several element types.

/// Runs a body for the Rust type of a tensor's elements, in one line.
///
/// `match_dtype!(dtype, T: f32 | f64 => body)` is `Ok(body)`, with `T` as the first of the types that
/// reads `dtype`, or an error that names them all. With `_ => other` at the end it is a plain value.
///
/// ```
/// use dlbridge::{Error, Tensor, match_dtype};
///
/// fn sum(tensor: &Tensor) -> Result<f64, Error> {
///     match_dtype!(tensor.dtype(), T: f32 | f64 | i32 => {
///         tensor.view::<T>()?.iter().map(f64::from).sum()
///     })
/// }
///
/// assert_eq!(sum(&Tensor::from([1.5_f32, 2.0]))?, 3.5);
/// assert_eq!(sum(&Tensor::from([1, 2]))?, 3.0);
/// let error = sum(&Tensor::from([true])).unwrap_err();
/// assert_eq!(error.to_string(), "dtype: expected float32 or float64 or int32, found bool");
///
/// let tensor = Tensor::from([1_u8]);
/// let size = match_dtype!(tensor.dtype(), T: u8 | i8 => size_of::<T>(), _ => 0);
/// assert_eq!(size, 1);
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[macro_export]
macro_rules! match_dtype {
    ($dtype:expr, $T:ident : $($type:ty)|+ => $body:expr, _ => $other:expr $(,)?) => {{
        let found: $crate::DType = $dtype;
        match found.word() {
            // Needed for one type, needless for another.
            $(#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            word if word == <$type as $crate::Element>::DTYPE.word() => {
                type $T = $type;
                $body
            })+
            _ => $other,
        }
    }};
    ($dtype:expr, $T:ident : $($type:ty)|+ => $body:expr $(,)?) => {{
        let found: $crate::DType = $dtype;
        match found.word() {
            // Needed for one type, needless for another.
            $(#[allow(clippy::useless_conversion, clippy::unnecessary_cast)]
            word if word == <$type as $crate::Element>::DTYPE.word() => {
                type $T = $type;
                ::core::result::Result::Ok($body)
            })+
            _ => {
                const WANTED: &[$crate::DType] = &[$(<$type as $crate::Element>::DTYPE),+];
                ::core::result::Result::Err($crate::Error::DTypeNotIn { found, expected: WANTED })
            }
        }
    }};
    ($($other:tt)*) => {
        ::core::compile_error!(
            "expected a dtype, a name and its types: `match_dtype!(x.dtype(), T: f32 | f64 => body)`; \
             `_ => other` may follow"
        )
    };
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
            assert_eq!(from.lost_bits(to), expected, "{from} {to}");
        }
    }
}
