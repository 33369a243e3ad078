//! Maps a dtype that is known at run time to the Rust type of its elements.
//! Invariant: there is one list of these types.

/// Runs `$body` with `$T` bound to the Rust type of `$dtype`'s elements, or `$otherwise` if the
/// dtype has no such type.
macro_rules! with_element {
    ($dtype:expr, |$T:ident| $body:expr, otherwise $otherwise:expr) => {
        $crate::dispatch::with_element!(@match $dtype, $T, $body, $otherwise;
            i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, bool,
            half::f16, half::bf16,
            num_complex::Complex<f32>, num_complex::Complex<f64>)
    };
    (@match $dtype:expr, $T:ident, $body:expr, $otherwise:expr; $($element:ty),*) => {{
        let dtype = $dtype;
        $(if dtype == <$element as dlbridge::Element>::DTYPE {
            type $T = $element;
            $body
        } else)* {
            $otherwise
        }
    }};
}
pub(crate) use with_element;

/// An element type that a Python number can be converted to.
pub(crate) trait FromNumber: dlbridge::Element {
    /// Converts like NumPy's `astype`: truncates fractions, wraps integers and rounds floats.
    fn from_integer(value: i128) -> Self;
    /// The same for a small number: quicker.
    fn from_i64(value: i64) -> Self;
    fn from_float(value: f64) -> Self;

    /// Whether the type has this number, up to its fraction. Floats have every one: too large ones are infinite.
    fn holds_integer(_: i128) -> bool {
        true
    }
    fn holds_float(_: f64) -> bool {
        true
    }
}

macro_rules! from_number {
    ($($T:ty $(, $limits:ident)?;)*) => {$(
        impl FromNumber for $T {
            fn from_integer(value: i128) -> Self {
                value as $T
            }

            fn from_i64(value: i64) -> Self {
                value as $T
            }

            fn from_float(value: f64) -> Self {
                value as $T
            }
            $($limits!($T);)?
        }
    )*};
}

macro_rules! limits {
    ($T:ty) => {
        fn holds_integer(value: i128) -> bool {
            Self::try_from(value).is_ok()
        }

        fn holds_float(value: f64) -> bool {
            // The upper limit is a power of two; the last number below it need not be a float.
            value.trunc() >= Self::MIN as f64 && value < 2.0 * (Self::MAX / 2 + 1) as f64
        }
    };
}

from_number! {
    i8, limits;
    i16, limits;
    i32, limits;
    i64, limits;
    u8, limits;
    u16, limits;
    u32, limits;
    u64, limits;
    f32;
    f64;
}

impl FromNumber for bool {
    fn from_integer(value: i128) -> Self {
        value != 0
    }

    fn from_i64(value: i64) -> Self {
        value != 0
    }

    fn from_float(value: f64) -> Self {
        value != 0.0
    }
}

macro_rules! from_number_half {
    ($($T:ty),*) => {$(
        impl FromNumber for $T {
            fn from_integer(value: i128) -> Self {
                Self::from_f64(value as f64)
            }

            fn from_i64(value: i64) -> Self {
                Self::from_f64(value as f64)
            }

            fn from_float(value: f64) -> Self {
                Self::from_f64(value)
            }
        }
    )*};
}

from_number_half!(half::f16, half::bf16);

impl<T: FromNumber> FromNumber for num_complex::Complex<T>
where
    Self: dlbridge::Element,
{
    fn from_integer(value: i128) -> Self {
        Self::new(T::from_integer(value), T::from_integer(0))
    }

    fn from_i64(value: i64) -> Self {
        Self::new(T::from_i64(value), T::from_i64(0))
    }

    fn from_float(value: f64) -> Self {
        Self::new(T::from_float(value), T::from_float(0.0))
    }
}
