//! Every Rust type that elements are read as: its dtype, and values there and back.
//! Truth values have a file of their own, `bool.rs`.

use std::fmt::Debug;

use crate::common::{import, take_back};
use dlbridge::{DType, Element, Error, Plain, Tensor};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

/// Everything that one element type has to pass: its dtype, exports, imports and slices.
#[track_caller]
fn passes<T: Plain + PartialEq + Debug>(dtype: DType, values: [T; 6]) {
    assert_eq!(T::DTYPE, dtype);
    assert_eq!(dtype.itemsize(), Some(size_of::<T>()), "{dtype}");
    assert!(DType::NAMED.contains(&dtype), "{dtype}");

    conformance::owner(|| (Tensor::from(values.to_vec()), Expected::new(&[6], &values)));
    conformance::owner(|| (Tensor::from(values), Expected::new(&[6], &values)));
    conformance::owner(|| (Tensor::scalar(values[5]), Expected::new(&[], &values[5..])));
    conformance::owner(|| {
        let owner = values.to_vec();
        let expected = Expected::new(&[2, 3], &values).at(owner.as_ptr()).read_only();
        (Tensor::builder(owner).shape(&[2, 3]).build_read_only::<T>().expect("it fits"), expected)
    });
    assert_eq!(conformance::reader(|tensor| Vec::<T>::try_from(tensor)), []);
    let refused = conformance::reader(|tensor| Ok(tensor.as_slice::<T>()?.to_vec()));
    let is_layout = |error: &Error| {
        let layout = matches!(error, Error::NotContiguous { .. } | Error::Misaligned { .. });
        layout || *error == Error::SharedMemory
    };
    assert!(refused.iter().all(|refusal| is_layout(&refusal.error)), "{dtype}: {refused:?}");

    let tensor = import(Foreign::new(&[3, 2], &values).strides(&[1, 3])).expect("legal");
    let wanted = [values[0], values[3], values[1], values[4], values[2], values[5]];
    assert_eq!(tensor.view::<T>().expect("host").to_vec(), wanted, "{dtype}");

    let mut tensor = Tensor::from(values);
    tensor.as_slice_mut::<T>().expect("exclusive").reverse();
    let mut reversed = values;
    reversed.reverse();
    assert_eq!(tensor.view::<T>().expect("its own type").to_vec(), reversed, "{dtype}");
    assert_eq!(take_back(tensor.into_raw()).dtype(), dtype);
}

macro_rules! integers_pass {
    ($($ty:ty = $dtype:ident;)*) => {$(
        passes::<$ty>(DType::$dtype, [0, 1, 2, <$ty>::MAX, <$ty>::MIN, 100]);
    )*};
}

#[test]
fn integers_are_elements() {
    integers_pass! {
        i8 = I8;
        i16 = I16;
        i32 = I32;
        i64 = I64;
        i128 = I128;
        u8 = U8;
        u16 = U16;
        u32 = U32;
        u64 = U64;
        u128 = U128;
    }
}

#[test]
fn floats_are_elements() {
    passes::<f32>(DType::F32, [0.0, -0.0, 1.5, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY]);
    passes::<f64>(DType::F64, [0.0, -0.0, 1.5, f64::MAX, f64::MIN_POSITIVE, f64::NEG_INFINITY]);
}

#[test]
fn the_bits_of_a_nan_survive() {
    let odd = f32::from_bits(0x7fa0_1234);
    let tensor = import(Foreign::new(&[1], &[odd])).expect("legal");
    assert_eq!(tensor.view::<f32>().expect("host").to_vec()[0].to_bits(), odd.to_bits());
}

#[test]
fn integers_of_pointer_size_read_the_fixed_size_of_their_machine() {
    assert_eq!(isize::DTYPE.element_bits(), isize::BITS);
    assert_eq!(usize::DTYPE.element_bits(), usize::BITS);
    passes::<usize>(usize::DTYPE, [0, 1, 2, usize::MAX, 4, 5]);
    passes::<isize>(isize::DTYPE, [0, 1, 2, isize::MAX, isize::MIN, 5]);
}

#[cfg(target_pointer_width = "64")]
#[test]
fn integers_of_pointer_size_and_fixed_size_are_one_dtype() {
    let mut tensor = Tensor::from(vec![1_u64, 2]);
    assert_eq!(tensor.as_slice::<usize>(), Ok(&[1, 2][..]));
    tensor.as_slice_mut::<usize>().expect("exclusive")[0] = usize::MAX;
    assert_eq!(tensor.into_owner::<Vec<u64>>().expect("a vector"), [u64::MAX, 2]);
    let tensor = Tensor::from(vec![-1_isize]);
    assert_eq!(tensor.view::<i64>().expect("the same").item(), Ok(-1));
}

#[test]
fn numbers_of_one_size_are_not_confused() {
    let tensor = Tensor::from([1_i32]);
    let refused = |wanted| Error::DTypeMismatch { found: DType::I32, expected: wanted };
    assert_eq!(tensor.view::<u32>().map(drop), Err(refused(DType::U32)));
    assert_eq!(tensor.view::<f32>().map(drop), Err(refused(DType::F32)));
    assert_eq!(tensor.as_slice::<u32>(), Err(refused(DType::U32)));
    assert_eq!(tensor.as_slice::<i64>(), Err(refused(DType::I64)));
    assert_eq!(tensor.view::<bool>().map(drop), Err(refused(DType::BOOL)));
}

#[test]
fn lanes_make_another_type() {
    let dtype = DType::F32.with_lanes(2);
    let foreign = Foreign::of_bytes(dtype, &[2], &[0; 16]);
    let tensor = import(foreign).expect("legal");
    assert_eq!((tensor.len(), tensor.nbytes()), (2, 16));
    let wanted = Error::DTypeMismatch { found: dtype, expected: DType::F32 };
    assert_eq!(tensor.view::<f32>().map(drop), Err(wanted));
    assert_eq!(tensor.to_contiguous().expect("host").dtype(), dtype);
}

#[cfg(feature = "half-2")]
#[test]
fn halves_are_elements() {
    use half::{bf16, f16};
    let numbers = [0.0, -0.0, 1.5, 65504.0, 1e-5, f32::INFINITY];
    passes::<f16>(DType::F16, numbers.map(f16::from_f32));
    passes::<bf16>(DType::BF16, numbers.map(bf16::from_f32));
    let tensor = Tensor::from(vec![f16::ONE]);
    assert!(tensor.view::<bf16>().is_err() && tensor.view::<u16>().is_err());
}

#[cfg(feature = "num-complex-0_4")]
#[test]
fn complex_numbers_are_elements() {
    use num_complex::Complex;
    let pairs = [(0.0, 1.0), (1.0, 0.0), (-1.5, 2.5), (3.0, 4.0), (1e30, -1e30), (0.5, 0.25)];
    passes::<Complex<f32>>(DType::COMPLEX64, pairs.map(|(re, im)| Complex::new(re, im)));
    let wide = pairs.map(|(re, im)| Complex::new(f64::from(re), f64::from(im)));
    passes::<Complex<f64>>(DType::COMPLEX128, wide);
    // the real part first
    let foreign = Foreign::new(&[1], &[1.0_f32, 2.0]).dtype(DType::COMPLEX64);
    let tensor = import(foreign).expect("legal");
    assert_eq!(tensor.view::<Complex<f32>>().expect("host").item(), Ok(Complex::new(1.0, 2.0)));
}

#[cfg(all(feature = "num-complex-0_4", feature = "half-2"))]
#[test]
fn complex_numbers_of_halves_are_elements() {
    use half::f16;
    use num_complex::Complex;
    let complex = |i: i8| Complex::new(f16::from(i), f16::from(-i));
    passes::<Complex<f16>>(DType::COMPLEX32, [0, 1, 2, 3, 4, 5].map(complex));
}
