//! `arrow` 60: buffers and primitive arrays, both ways.
//! Lists and columns of tensors are in `arrow_60_lists.rs`.

use std::sync::Arc;
use std::thread;

use super::arrow::array::types::Float64Type;
use super::arrow::array::{ArrayRef, BooleanArray, Date32Array, Int32Array, PrimitiveArray};
use super::arrow::buffer::{Buffer, ScalarBuffer};
use crate::common::{import, other_rank};
use dlbridge::{Access, Device, Error, Flags, Tensor, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

#[test]
fn a_buffer_conforms() {
    conformance::owner(|| {
        let buffer = Buffer::from(vec![1_u8, 2, 3, 4]).slice_with_length(1, 2);
        let expected = Expected::new(&[2], &[2_u8, 3]).at(buffer.as_ptr()).read_only();
        (Tensor::from(buffer), expected)
    });
    conformance::owner(|| {
        (Tensor::from(Buffer::default()), Expected::<u8>::new(&[0], &[]).read_only())
    });
}

#[test]
fn a_buffer_of_numbers_conforms() {
    conformance::owner(|| {
        let buffer = ScalarBuffer::from(vec![1_i32, 2, 3, 4]).slice(1, 3);
        let expected = Expected::new(&[3], &[2, 3, 4]).at(buffer.as_ptr()).read_only();
        (Tensor::from(buffer), expected)
    });
}

#[test]
fn a_primitive_array_conforms() {
    conformance::owner(|| {
        let array = Int32Array::from(vec![0, 1, 2, 3]).slice(2, 2);
        let expected = Expected::new(&[2], &[2, 3]).at(array.values().as_ptr()).read_only();
        (Tensor::try_from(array).expect("no nulls"), expected)
    });
    conformance::owner(|| {
        let array = Date32Array::from(vec![0, 365]);
        let expected = Expected::new(&[2], &[0_i32, 365]).at(array.values().as_ptr()).read_only();
        (Tensor::try_from(array).expect("dates are numbers"), expected)
    });
    conformance::owner(|| {
        let array = Int32Array::from(Vec::<i32>::new());
        (Tensor::try_from(array).expect("no nulls"), Expected::<i32>::new(&[0], &[]).read_only())
    });
}

#[test]
fn a_borrowed_array_conforms() {
    let array = Int32Array::from(vec![1, 2, 3]);
    let expected = Expected::new(&[3], &[1, 2, 3]).at(array.values().as_ptr());
    conformance::borrowed(&TensorRef::try_from(&array).expect("no nulls"), &expected);
    let with_nulls = Int32Array::from(vec![Some(1), None, None]);
    let error = TensorRef::try_from(&with_nulls).map(drop).expect_err("it has nulls");
    assert_eq!(error.to_string(), "values: expected an array without nulls, found 2 nulls");
}

#[test]
fn nulls_that_were_sliced_away_are_no_nulls() {
    let array = Int32Array::from(vec![None, Some(1), Some(2)]);
    assert!(Tensor::try_from(array.clone()).is_err());
    let tensor = Tensor::try_from(array.slice(1, 2)).expect("the rest has none");
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2][..]));
}

#[test]
fn packed_truth_values_are_refused() {
    let array: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let error = Tensor::try_from(array).map(drop).expect_err("bits");
    let wanted = "integers or floats of 8 to 64 bits";
    let found = "Boolean, which Arrow packs into bits";
    assert_eq!(error.to_string(), format!("dtype: expected {wanted}, found {found}"));
    let error = ArrayRef::try_from(Tensor::from(vec![true])).map(drop).expect_err("bytes");
    assert_eq!(error.to_string(), format!("dtype: expected {wanted}, found bool"));
}

#[test]
fn a_tensor_held_by_arrow_is_the_same_memory() {
    let values = vec![1.5_f64, 2.5];
    let data = values.as_ptr();
    let array = PrimitiveArray::<Float64Type>::try_from(Tensor::from(values)).expect("exclusive");
    assert_eq!((array.values().as_ptr(), &array.values()[..]), (data, &[1.5, 2.5][..]));
    // and out again, sliced by Arrow on the way
    let tensor = Tensor::try_from(array.slice(1, 1)).expect("no nulls");
    assert_eq!(tensor.data_ptr().addr(), data.wrapping_add(1).addr());
    assert_eq!(tensor.access(), Access::Frozen);
}

#[test]
fn a_frozen_tensor_is_borrowed_to_arrow() {
    let shared: Arc<[i32]> = Arc::from([1, 2]);
    let array = Int32Array::try_from(Tensor::from(Arc::clone(&shared))).expect("frozen");
    assert_eq!(array.values().as_ptr(), shared.as_ptr());
    assert_eq!(Arc::strong_count(&shared), 2);
    drop(array);
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn taking_a_tensor_conforms() {
    let refused = conformance::taker::<i32, _>(|tensor| {
        let array = Int32Array::try_from(tensor)?;
        Ok(array.values().to_vec())
    });
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    let wanted = ["contiguous", "contiguous, shared", "reversed", "odd address", "every second"];
    assert!(wanted.iter().all(|name| names.contains(name)), "{names:?}");
    let taken = ["one axis", "no elements", "pinned"];
    assert!(!taken.iter().any(|name| names.contains(name)), "{names:?}");

    let refused = conformance::taker::<u16, _>(|tensor| {
        let again = Tensor::try_from(ArrayRef::try_from(tensor)?)?;
        Ok(again.as_slice::<u16>()?.to_vec())
    });
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    let wanted = ["contiguous, shared", "rank 0", "rank 0, null lists", "column-major"];
    assert!(wanted.iter().all(|name| names.contains(name)), "{names:?}");
    let taken =
        ["contiguous", "contiguous, read-only", "rank 3", "rank 9", "pinned", "no elements"];
    assert!(!taken.iter().any(|name| names.contains(name)), "{names:?}");
}

#[test]
fn what_others_may_write_is_refused() {
    let foreign = || Foreign::new(&[2], &[1_i32, 2]);
    let releases = foreign().releases();
    for flags in [Flags::NONE, Flags::READ_ONLY] {
        let tensor = import(foreign().flags(flags)).expect("legal");
        assert_eq!(Buffer::try_from(tensor).map(drop), Err(Error::SharedMemory));
        let tensor = import(foreign().flags(flags)).expect("legal");
        assert_eq!(Int32Array::try_from(tensor).map(drop), Err(Error::SharedMemory));
        let tensor = import(foreign().flags(flags)).expect("legal");
        assert_eq!(ArrayRef::try_from(tensor).map(drop), Err(Error::SharedMemory));
    }
    releases.expect(0, "another producer's");
}

#[test]
fn a_refused_tensor_is_released_once() {
    let foreign = Foreign::new(&[2], &[1_i32, 2]);
    let releases = foreign.releases();
    let tensor = import(foreign).expect("legal");
    assert!(Buffer::try_from(tensor).is_err());
    releases.expect(1, "refused");
}

#[test]
fn a_foreign_copy_is_borrowed_to_arrow_and_released_once_elsewhere() {
    let foreign = Foreign::new(&[3], &[1_i32, 2, 3]).class(Access::Exclusive);
    let releases = foreign.releases();
    let tensor = import(foreign).expect("legal");
    let data = tensor.data_ptr();
    let array = Int32Array::try_from(tensor).expect("ours alone");
    assert_eq!(array.values().as_ptr().addr(), data.addr());
    let (first, last) = (array.slice(0, 1), array.slice(2, 1));
    drop(array);
    releases.expect(0, "slices hold it");
    drop(first);
    thread::spawn(move || drop(last)).join().expect("no panic");
    releases.expect(1, "the last slice is gone");
}

#[test]
fn misuse_is_refused() {
    let numbers = || Tensor::from(vec![1_i32, 2, 3, 4]);
    assert!(matches!(
        PrimitiveArray::<Float64Type>::try_from(numbers()).map(drop),
        Err(Error::DTypeMismatch { .. })
    ));
    let matrix = Tensor::builder(vec![1_i32; 4]).shape(&[2, 2]).build().expect("it fits");
    let rank = other_rank(1, 2);
    assert_eq!(Int32Array::try_from(matrix).map(drop), Err(rank.clone()));
    let scalar = other_rank(1, 0);
    assert_eq!(Int32Array::try_from(Tensor::scalar(1)).map(drop), Err(scalar.clone()));
    assert_eq!(ArrayRef::try_from(Tensor::scalar(1)).map(drop), Err(scalar));
    let gaps = || Tensor::builder(vec![1_i32; 4]).shape(&[2]).strides(&[2]).build().expect("fits");
    assert!(matches!(Buffer::try_from(gaps()), Err(Error::NotContiguous { .. })));
    assert!(matches!(Int32Array::try_from(gaps()), Err(Error::NotContiguous { .. })));
    let odd = || {
        let odd = Foreign::new(&[2], &[1_i32, 2, 3]).data_at(1).class(Access::Exclusive);
        import(odd).expect("legal")
    };
    assert!(matches!(Int32Array::try_from(odd()), Err(Error::Misaligned { .. })));
    assert!(matches!(ArrayRef::try_from(odd()), Err(Error::Misaligned { .. })));
    assert_eq!(Buffer::try_from(odd()).expect("bytes need no alignment").len(), 8);
    let device = || {
        let far = Foreign::new(&[2], &[1_i32, 2]).device(Device::cuda(0)).class(Access::Exclusive);
        import(far).expect("legal")
    };
    let wanted = Error::NotHostAccessible { device: Device::cuda(0) };
    assert_eq!(Buffer::try_from(device()).map(drop), Err(wanted.clone()));
    assert_eq!(Int32Array::try_from(device()).map(drop), Err(wanted.clone()));
    assert_eq!(ArrayRef::try_from(device()).map(drop), Err(wanted));
}

#[test]
fn a_tensor_without_elements_is_an_empty_buffer() {
    let foreign =
        Foreign::new::<i32>(&[0], &[]).data(std::ptr::null_mut()).class(Access::Exclusive);
    let releases = foreign.releases();
    let array = Int32Array::try_from(import(foreign).expect("legal")).expect("no elements");
    assert_eq!(array.len(), 0);
    releases.expect(1, "nothing is left to keep");
}

#[test]
fn bytes_of_every_shape_and_type_are_a_buffer() {
    let scalar = Buffer::try_from(Tensor::scalar(7_u8)).expect("exclusive");
    assert_eq!(scalar.as_slice(), [7]);
    let truth = Buffer::try_from(Tensor::from(vec![true, false])).expect("bytes");
    assert_eq!(truth.as_slice(), [1, 0]);
}

#[test]
fn arrow_never_writes_to_a_tensors_memory() {
    let owner = CountingOwner::new([1_i32, 2]);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<i32>().expect("it fits");
    let buffer = Buffer::try_from(tensor).expect("exclusive");
    let buffer = buffer.into_mutable().expect_err("the memory is not Arrow's own");
    let buffer = buffer.into_vec::<i32>().expect_err("nor a vector's");
    let array = Int32Array::new(ScalarBuffer::new(buffer, 0, 2), None);
    let array = array.into_builder().expect_err("nor a builder's");
    assert_eq!(array.values()[..], [1, 2]);
    drops.expect(0, "Arrow holds it");
    drop(array);
    drops.expect(1, "Arrow dropped it");
}

/// What a program does with a version of Arrow that has no adapter: nothing here names the feature.
#[cfg(feature = "bytes-1")]
#[test]
fn another_version_of_arrow_is_met_by_slices_and_bytes() {
    let array = PrimitiveArray::<Float64Type>::from(vec![0.0, 1.0, 2.0]).slice(1, 2);
    let tensor = Tensor::from_guard(array.values().clone());
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Frozen, true));
    assert_eq!(tensor.data_ptr().cast::<f64>().cast_const(), array.values().as_ptr());
    drop(array);
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[1.0, 2.0][..]));

    let tensor = Tensor::from(vec![3.0, 4.0]);
    let address = tensor.data_ptr().cast::<f64>().cast_const();
    let bytes = bytes::Bytes::from_owner(tensor.into_bytes().expect("contiguous"));
    let array = PrimitiveArray::<Float64Type>::new(Buffer::from(bytes).into(), None);
    assert_eq!((array.values().as_ptr(), &array.values()[..]), (address, &[3.0, 4.0][..]));
}
