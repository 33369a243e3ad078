//! Every Rust type that elements are read as: its dtype, and values there and back.
#![allow(unsafe_code, reason = "a foreign writer is played")]

use std::fmt::Debug;
use std::sync::Arc;

use dlbridge::{Access, DType, Element, Error, Plain, Tensor, TensorMut};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

use crate::common::{import, take_back};

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
        (Tensor::builder(owner).shape([2, 3]).build_read_only::<T>().expect("it fits"), expected)
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

// Truth values: any foreign byte but 0 is true, and no `&bool` is ever formed over one.

const ODD: [u8; 5] = [0, 1, 2, 255, 0];
const READ: [bool; 5] = [false, true, true, true, false];

fn odd() -> Foreign {
    Foreign::of_bytes(DType::BOOL, &[5], &ODD)
}

#[test]
fn any_byte_but_0_reads_as_true() {
    let tensor = import(odd()).expect("legal");
    let view = tensor.view::<bool>().expect("bool");
    assert_eq!(view.to_vec(), READ);
    assert!(view.iter().eq(READ));
    assert!((0..5).all(|i| view.get([i]) == Some(READ[i])));
    let mut target = [false; 5];
    view.copy_to_slice(&mut target).expect("as long");
    assert_eq!(target, READ);
    let cells = view.as_cells().expect("bytes are always aligned");
    assert!(cells.iter().map(|cell| cell.get()).eq(READ));
}

#[test]
fn strided_truth_values_are_read_the_same() {
    let tensor = import(odd().strides(&[-1]).data_at(4)).expect("legal");
    let wanted: Vec<bool> = READ.into_iter().rev().collect();
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), wanted);
    let tensor = import(odd().strides(&[0]).data_at(2)).expect("legal");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true; 5]);
}

#[test]
fn writing_leaves_bytes_that_rust_may_hold() {
    let mut tensor = import(odd().class(Access::Exclusive)).expect("legal");
    let mut view = tensor.view_mut::<bool>().expect("exclusive");
    assert_eq!(view.get([2]), Some(true));
    view.map_inplace(|value| value);
    let data = tensor.data_ptr();
    let managed = tensor.into_raw();
    // SAFETY: owned by the test; five bytes lie there.
    let bytes = unsafe { data.cast::<[u8; 5]>().read() };
    assert_eq!(bytes, [0, 1, 1, 1, 0]);
    drop(take_back(managed));
}

#[test]
fn a_copy_keeps_the_bytes_and_reads_the_same() {
    let copy = import(odd()).expect("legal").to_contiguous().expect("host");
    assert_eq!(copy.view::<bool>().expect("bool").to_vec(), READ);
    assert_eq!(Vec::<bool>::try_from(&copy), Ok(READ.to_vec()));
}

#[test]
fn bytes_that_are_said_to_be_truth_values_read_as_such() {
    let builder = Tensor::builder(ODD.to_vec()).dtype(DType::BOOL);
    let tensor = builder.build::<u8>().expect("it fits");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), READ);
    let wanted = Error::DTypeMismatch { found: DType::BOOL, expected: DType::U8 };
    assert_eq!(tensor.as_slice::<u8>(), Err(wanted));
}

#[test]
fn truth_values_that_rust_owns_may_be_exported_and_returned() {
    let mut tensor = Tensor::from(vec![true, false]);
    assert_eq!(tensor.dtype(), DType::BOOL);
    tensor.view_mut::<bool>().expect("exclusive").map_inplace(|value| !value);
    assert_eq!(tensor.into_owner::<Vec<bool>>().expect("a vector"), [false, true]);
}

/// What another language may do to memory that was shared writable with it.
fn scribble(tensor: &Tensor) {
    let byte = tensor.data_ptr().cast::<u8>();
    // SAFETY: one byte of memory that may be written, which no code reads.
    unsafe { byte.write(2) };
}

#[test]
fn truth_values_that_others_may_have_written_are_not_returned() {
    let tensor = Tensor::from(vec![true, false]).into_shared();
    let share = Tensor::from(tensor.clone());
    scribble(&share);
    drop(share);
    let tensor = tensor.into_inner().expect("the share is gone");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true, false]);
    // a `Vec<bool>` with a 2 in it would be undefined behaviour
    let tensor = tensor.into_owner::<Vec<bool>>().expect_err("its bytes are not known");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true, false]);
}

#[test]
fn truth_values_are_not_written_as_bytes() {
    let mut values = [true, false];
    let wanted = Error::DTypeMismatch { found: DType::BOOL, expected: DType::U8 };
    assert_eq!(TensorMut::from(&mut values[..]).as_bytes_mut(), Err(wanted.clone()));
    // a 2 in this vector would be undefined behaviour
    assert_eq!(Tensor::from(vec![true]).as_bytes_mut(), Err(wanted));
}

#[test]
fn numbers_that_others_may_have_written_are_returned() {
    let tensor = Tensor::from(vec![7_u8, 8]).into_shared();
    scribble(&tensor);
    let tensor = tensor.into_inner().expect("no other handle");
    assert_eq!(tensor.into_owner::<Vec<u8>>().expect("a vector"), [2, 8]);
}

#[test]
fn truth_values_of_an_immutable_owner_are_returned() {
    let owner: Arc<[bool]> = Arc::from([true, false]);
    let tensor = Tensor::from(Tensor::from(owner).into_shared());
    assert_eq!(tensor.into_owner::<Arc<[bool]>>().expect("that is it")[..], [true, false]);
}

#[test]
fn truth_values_are_borrowed_to_c_functions() {
    let mut values = [true, false];
    let mut tensor = TensorMut::from(&mut values[..]);
    tensor.view_mut::<bool>().expect("exclusive").fill(true);
    tensor.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends.
        let dtype = unsafe { (*descriptor).dtype };
        assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (6, 8, 1));
    });
    assert_eq!(values, [true, true]);
}

#[test]
fn an_item_is_the_only_element_whatever_the_ndim() {
    let item = |shape: &[i64]| {
        let tensor = Tensor::builder(vec![4_u8; 8]).shape(shape).build::<u8>().expect("it fits");
        tensor.view::<u8>().expect("its own type").item()
    };
    assert_eq!((item(&[]), item(&[1]), item(&[1, 1, 1])), (Ok(4), Ok(4), Ok(4)));
    assert_eq!(item(&[2]), Err(crate::common::other_length(1, 2)));
    assert_eq!(item(&[0]), Err(crate::common::other_length(1, 0)));
}
