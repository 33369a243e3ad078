//! 8-bit and paired 4-bit floats of `float8` 0.7, `microfloat` 0.1 and `float4` 0.2 as elements.
//! Every byte of each is compared with what its format says it means.

use std::fmt::Debug;

use dlbridge::{DType, Error, Plain, Tensor, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use float4::{E8M0, F4E2M1x2};
use float8::{F8E4M3, F8E5M2};
use microfloat::{
    f8e3m4, f8e4m3, f8e4m3b11fnuz, f8e4m3fn, f8e4m3fnuz, f8e5m2, f8e5m2fnuz, f8e8m0fnu,
};

/// What is special about an 8-bit float, beside its widths and its bias.
#[derive(Clone, Copy, PartialEq)]
enum Special {
    /// The highest exponent is infinity, or no number.
    Ieee,
    /// No infinities; all bits but the sign set are no number.
    Finite,
    /// No infinities and no negative zero, whose bits are no number.
    FiniteUnsignedZero,
}

/// The value of an 8-bit float by its format's definition; `None` is no number.
fn value(bits: u8, mantissa_bits: u32, bias: i32, special: Special) -> Option<f32> {
    let mantissa_mask = (1_u8 << mantissa_bits) - 1;
    let (sign, rest) = (bits & 0x80, bits & 0x7f);
    let (exponent, mantissa) = (rest >> mantissa_bits, rest & mantissa_mask);
    let highest = 0x7f >> mantissa_bits;
    match special {
        Special::Ieee if exponent == highest && mantissa != 0 => return None,
        Special::Finite if rest == 0x7f => return None,
        Special::FiniteUnsignedZero if bits == 0x80 => return None,
        _ => {}
    }
    let fraction = f32::from(mantissa) / f32::from(mantissa_mask + 1);
    let magnitude = match exponent {
        _ if special == Special::Ieee && exponent == highest => f32::INFINITY,
        0 => fraction * 2_f32.powi(1 - bias),
        _ => (1.0 + fraction) * 2_f32.powi(i32::from(exponent) - bias),
    };
    Some(if sign == 0 { magnitude } else { -magnitude })
}

/// Whether two floats are the same, sign of zero and all; no number is `None`.
fn same(found: f32, wanted: Option<f32>) -> bool {
    match wanted {
        None => found.is_nan(),
        Some(wanted) => found.to_bits() == wanted.to_bits(),
    }
}

/// Reads every byte as an element and compares it; writes it back unchanged.
#[track_caller]
fn means<T: Plain + Debug>(dtype: DType, to_f32: fn(T) -> f32, value: fn(u8) -> Option<f32>) {
    assert_eq!((T::DTYPE, size_of::<T>()), (dtype, 1));
    let bytes: Vec<u8> = (0..=255).collect();
    let tensor = Tensor::from_bytes(dtype, [256], &bytes).expect("256 bytes");
    let slice = tensor.as_slice::<T>().expect("exclusive");
    for (bits, &element) in (0..=255).zip(slice) {
        let (found, wanted) = (to_f32(element), value(bits));
        assert!(same(found, wanted), "{dtype}: {bits:#04x} is {wanted:?}, found {found}");
    }
    let again = Tensor::from(tensor.view::<T>().expect("its own type").to_vec());
    assert_eq!((again.dtype(), again.as_bytes()), (dtype, Ok(&bytes[..])));
    let reversed = Tensor::builder(bytes).dtype(dtype).strides([-1]).shape([256]).offset(255);
    let reversed = reversed.build::<u8>().expect("it fits");
    let first = reversed.view::<T>().expect("its own type").get([0]).expect("there");
    assert!(same(to_f32(first), value(255)));
    let refused = TensorRef::from(slice).as_slice::<u8>().map(|_| ());
    assert_eq!(refused, Err(Error::DTypeMismatch { found: dtype, expected: DType::U8 }));
}

#[test]
fn every_byte_means_what_its_type_says() {
    use Special::{Finite, FiniteUnsignedZero, Ieee};
    means(DType::FLOAT8_E3M4, f8e3m4::to_f32, |bits| value(bits, 4, 3, Ieee));
    means(DType::FLOAT8_E4M3, f8e4m3::to_f32, |bits| value(bits, 3, 7, Ieee));
    means(DType::FLOAT8_E4M3B11FNUZ, f8e4m3b11fnuz::to_f32, |bits| {
        value(bits, 3, 11, FiniteUnsignedZero)
    });
    means(DType::FLOAT8_E4M3FN, f8e4m3fn::to_f32, |bits| value(bits, 3, 7, Finite));
    means(DType::FLOAT8_E4M3FNUZ, f8e4m3fnuz::to_f32, |bits| value(bits, 3, 8, FiniteUnsignedZero));
    means(DType::FLOAT8_E5M2, f8e5m2::to_f32, |bits| value(bits, 2, 15, Ieee));
    means(DType::FLOAT8_E5M2FNUZ, f8e5m2fnuz::to_f32, |bits| {
        value(bits, 2, 16, FiniteUnsignedZero)
    });
    means(DType::FLOAT8_E8M0FNU, f8e8m0fnu::to_f32, power_of_two);
    means(DType::FLOAT8_E8M0FNU, |scale: E8M0| scale.to_f64() as f32, power_of_two);
    means(DType::FLOAT8_E4M3FN, |x: F8E4M3| x.to_f32(), |bits| value(bits, 3, 7, Finite));
    means(DType::FLOAT8_E5M2, |x: F8E5M2| x.to_f32(), |bits| value(bits, 2, 15, Ieee));
}

fn power_of_two(bits: u8) -> Option<f32> {
    (bits != 255).then(|| 2_f64.powi(i32::from(bits) - 127) as f32)
}

#[test]
fn pairs_of_4_bit_floats_have_the_first_in_the_low_bits() {
    let dtype = DType::FLOAT4_E2M1FN.with_lanes(2);
    let magnitudes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let value = |bits: u8| {
        let magnitude = magnitudes[usize::from(bits & 7)];
        if bits & 8 == 0 { magnitude } else { -magnitude }
    };
    let bytes: Vec<u8> = (0..=255).collect();
    let tensor = Tensor::from_bytes(dtype, [256], &bytes).expect("256 bytes");
    for (bits, pair) in (0..=255_u8).zip(tensor.as_slice::<F4E2M1x2>().expect("exclusive")) {
        let found = (pair.lo().to_f64(), pair.hi().to_f64());
        assert_eq!(found, (value(bits & 15), value(bits >> 4)), "{bits:#04x}");
    }
    let packed = Tensor::from_bytes(DType::FLOAT4_E2M1FN, [4], &[0x21, 0x43]).expect("2 bytes");
    let wanted = Error::DTypeMismatch { found: DType::FLOAT4_E2M1FN, expected: dtype };
    assert_eq!(packed.as_slice::<F4E2M1x2>().map(|_| ()), Err(wanted));
}

#[test]
fn lists_of_small_floats_conform() {
    conformance::owner(|| {
        let values = [1.0, -2.0, 0.5].map(F8E4M3::from_f32);
        (Tensor::from(values), Expected::new(&[3], &values))
    });
    conformance::owner(|| {
        let values = [1.0, -2.0, 0.5].map(f8e5m2::from_f32).to_vec();
        let expected = Expected::new(&[3], &values).at(values.as_ptr());
        (Tensor::from(values), expected)
    });
    conformance::owner(|| {
        let values = vec![F4E2M1x2::from_bits(0x21); 4];
        let expected = Expected::new(&[4], &values).at(values.as_ptr());
        (Tensor::from(values), expected)
    });
    assert!(
        conformance::reader(|tensor| Ok(tensor.view::<F4E2M1x2>()?.to_vec())).is_empty(),
        "a view takes every layout"
    );
    assert!(
        conformance::reader(|tensor| Ok(tensor.view::<E8M0>()?.to_vec())).is_empty(),
        "a view takes every layout"
    );
}
