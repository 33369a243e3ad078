//! Element types, compared by their bits.

use std::fmt::Debug;

use dlbridge::{Element, Plain};

/// A Rust element type.
pub(crate) trait Value: Element + Debug {
    /// The value of bytes of this size.
    fn of(bytes: &[u8]) -> Self;

    /// All bits, so that a NaN equals itself.
    fn bits(self) -> u128;
}

macro_rules! values {
    ($($ty:ty, $bits:ty;)*) => {$(
        impl Value for $ty {
            fn of(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("an element's bytes"))
            }

            fn bits(self) -> u128 {
                u128::from(<$bits>::from_ne_bytes(self.to_ne_bytes()))
            }
        }
    )*};
}

values! {
    u8, u8;
    u32, u32;
    u128, u128;
    i16, u16;
    i64, u64;
    f32, u32;
    f64, u64;
}

impl Value for bool {
    fn of(bytes: &[u8]) -> Self {
        bytes != [0]
    }

    fn bits(self) -> u128 {
        u128::from(self)
    }
}

/// The bits of each value.
pub(crate) fn bits<T: Value>(values: impl IntoIterator<Item = T>) -> Vec<u128> {
    values.into_iter().map(Value::bits).collect()
}

/// Code for the Rust type of a dtype, if there is one, and whether slices of it can be borrowed.
pub(crate) trait ForType {
    type Output;

    fn plain<T: Value + Plain + Default>(self) -> Self::Output;

    fn bool(self) -> Self::Output;

    fn none(self) -> Self::Output;
}

/// Runs the code for a dtype.
pub(crate) fn for_type<F: ForType>(dtype: dlbridge::DType, code: F) -> F::Output {
    use dlbridge::DType;
    match dtype {
        DType::U8 => code.plain::<u8>(),
        DType::U32 => code.plain::<u32>(),
        DType::U128 => code.plain::<u128>(),
        DType::I16 => code.plain::<i16>(),
        DType::I64 => code.plain::<i64>(),
        DType::F32 => code.plain::<f32>(),
        DType::F64 => code.plain::<f64>(),
        DType::BOOL => code.bool(),
        _ => code.none(),
    }
}
