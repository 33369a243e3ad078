//! `arrow` 60: buffers and primitive arrays, both ways.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;

use dlbridge::{Access, DType, Device, Error, Flags, Tensor, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

use super::arrow::adapter;
use super::arrow::array::cast::AsArray;
use super::arrow::array::types::{Float64Type, Int32Type};
use super::arrow::array::{
    Array, ArrayRef, BooleanArray, Date32Array, FixedSizeListArray, Int32Array, PrimitiveArray,
    StringArray,
};
use super::arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use super::arrow::schema::{DataType, Field};
use crate::common::{import, other_ndim};

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
    let wanted = ["contiguous, shared", "0-d", "0-d, null lists", "column-major"];
    assert!(wanted.iter().all(|name| names.contains(name)), "{names:?}");
    let taken = ["contiguous", "contiguous, read-only", "3-d", "9-d", "pinned", "no elements"];
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
    let matrix = Tensor::builder(vec![1_i32; 4]).shape([2, 2]).build().expect("it fits");
    let ndim = other_ndim(1, 2);
    assert_eq!(Int32Array::try_from(matrix).map(drop), Err(ndim.clone()));
    let scalar = other_ndim(1, 0);
    assert_eq!(Int32Array::try_from(Tensor::scalar(1)).map(drop), Err(scalar.clone()));
    assert_eq!(ArrayRef::try_from(Tensor::scalar(1)).map(drop), Err(scalar));
    let gaps = || Tensor::builder(vec![1_i32; 4]).shape([2]).strides([2]).build().expect("fits");
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

// `arrow` 60: lists of fixed size and columns of tensors, both ways.

const TENSOR: &str = "arrow.fixed_shape_tensor";

/// Lists of `size` items around an array.
fn lists(size: i32, values: ArrayRef) -> FixedSizeListArray {
    let item = Arc::new(Field::new("item", values.data_type().clone(), true));
    FixedSizeListArray::new(item, size, values, None)
}

fn numbers(count: i32) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(0..count))
}

fn start(array: &ArrayRef) -> *const i32 {
    array.as_primitive::<Int32Type>().values().as_ptr()
}

#[test]
fn lists_become_axes() {
    conformance::owner(|| {
        let values = numbers(6);
        let expected = Expected::new(&[2, 3], &[0, 1, 2, 3, 4, 5]).at(start(&values)).read_only();
        (Tensor::try_from(lists(3, values)).expect("no nulls"), expected)
    });
    conformance::owner(|| {
        let values = numbers(8);
        let expected = Expected::new(&[2, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]);
        let expected = expected.at(start(&values)).read_only();
        let nested = lists(2, Arc::new(lists(2, values)));
        (Tensor::try_from(nested).expect("no nulls"), expected)
    });
    conformance::owner(|| {
        let values = numbers(3);
        let expected = Expected::new(&[3], &[0, 1, 2]).at(start(&values)).read_only();
        (Tensor::try_from(values).expect("no nulls"), expected)
    });
}

#[test]
fn sliced_lists_become_axes() {
    conformance::owner(|| {
        let values = numbers(14).slice(2, 12);
        let data = start(&values).wrapping_add(4);
        let sliced = lists(2, Arc::new(lists(2, values))).slice(1, 2);
        let expected = Expected::new(&[2, 2, 2], &[6, 7, 8, 9, 10, 11, 12, 13]);
        (Tensor::try_from(sliced).expect("no nulls"), expected.at(data).read_only())
    });
}

#[test]
fn lists_without_elements_become_axes() {
    let none = Tensor::try_from(lists(3, numbers(0))).expect("no nulls");
    assert_eq!(none.shape(), [0, 3]);
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let empty = FixedSizeListArray::try_new_with_length(item, 0, numbers(0), None, 4);
    let tensor = Tensor::try_from(empty.expect("legal")).expect("no nulls");
    assert_eq!((tensor.shape(), tensor.len()), (&[4, 0][..], 0));
}

#[test]
fn nulls_at_any_depth_are_refused() {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let nulls = NullBuffer::from(vec![true, false]);
    let outer = FixedSizeListArray::new(item, 2, numbers(4), Some(nulls));
    let inner = lists(2, Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)])));
    let deep = lists(1, Arc::new(outer.clone()));
    for array in [outer, inner, deep] {
        let error = Tensor::try_from(array).map(drop).expect_err("it has nulls");
        assert_eq!(error.to_string(), "values: expected an array without nulls, found 1 null");
    }
}

#[test]
fn what_is_no_number_is_refused() {
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let error = Tensor::try_from(lists(2, text)).map(drop).expect_err("text");
    let wanted = "integers or floats of 8 to 64 bits";
    assert_eq!(error.to_string(), format!("dtype: expected {wanted}, found Utf8"));
    let wide = ArrayRef::try_from(Tensor::from(vec![1_u128])).map(drop).expect_err("128 bits");
    assert_eq!(wide.to_string(), format!("dtype: expected {wanted}, found uint128"));
}

#[test]
fn axes_become_lists_over_the_same_memory() {
    let values: Vec<i32> = (0..24).collect();
    let data = values.as_ptr();
    let tensor = Tensor::builder(values).shape([2, 3, 4]).build::<i32>().expect("it fits");
    let array = ArrayRef::try_from(tensor).expect("exclusive");
    assert_eq!(array.len(), 2);
    let rows = array.as_fixed_size_list().value(1);
    let row = rows.as_fixed_size_list().value(2);
    assert_eq!(row.as_primitive::<Int32Type>().values()[..], [20, 21, 22, 23]);
    assert_eq!(start(&row), data.wrapping_add(20));
    let again = Tensor::try_from(array).expect("no nulls");
    assert_eq!((again.shape(), again.data_ptr().addr()), (&[2, 3, 4][..], data.addr()));
}

#[test]
fn every_number_has_an_array() {
    for name in [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64",
    ] {
        let dtype: DType = name.parse().expect("a name");
        let tensor = Tensor::zeros(dtype, [2, 2]).expect("small");
        let data = tensor.data_ptr();
        let array = ArrayRef::try_from(tensor).expect("exclusive");
        let again = Tensor::try_from(array).expect("no nulls");
        assert_eq!((again.dtype(), again.data_ptr()), (dtype, data), "{name}");
    }
}

#[test]
fn extents_beyond_a_list_are_refused() {
    let huge = i64::from(i32::MAX) + 1;
    let empty = || {
        let builder = Tensor::builder(Vec::<i32>::new()).shape([0, huge]);
        builder.build::<i32>().expect("legal")
    };
    let wanted = format!("found lists of {huge} items");
    let error = ArrayRef::try_from(empty()).map(drop).expect_err("too long for a list");
    assert!(error.to_string().ends_with(&wanted), "{error}");
    let error =
        adapter::into_fixed_shape_tensors(empty(), "x").map(drop).expect_err("too long for a list");
    assert!(error.to_string().ends_with(&wanted), "{error}");
}

/// A field of tensors, as its metadata describe them.
fn tensors(extension: &str, metadata: &str, array: &FixedSizeListArray) -> Field {
    let words = [("ARROW:extension:name", extension), ("ARROW:extension:metadata", metadata)];
    let words: HashMap<_, _> = words.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    Field::new("x", array.data_type().clone(), true).with_metadata(words)
}

#[test]
fn a_column_of_tensors_conforms() {
    conformance::owner(|| {
        let values = numbers(12);
        let all: Vec<i32> = (0..12).collect();
        let expected = Expected::new(&[2, 2, 3], &all).at(start(&values)).read_only();
        let array = lists(6, values);
        let field = tensors(TENSOR, r#"{"shape":[2,3]}"#, &array);
        (adapter::from_fixed_shape_tensors(&field, array).expect("no nulls"), expected)
    });
}

#[test]
fn a_permuted_column_has_strides() {
    conformance::owner(|| {
        let values = numbers(48);
        let array = lists(24, values.clone());
        let metadata = r#"{"shape":[2,3,4],"permutation":[2,0,1],"dim_names":null}"#;
        let field = tensors(TENSOR, metadata, &array);
        let mut wanted = Vec::new();
        for tensor in 0..2 {
            for i in 0..4 {
                for j in 0..2 {
                    wanted.extend((0..3).map(|k| tensor * 24 + j * 12 + k * 4 + i));
                }
            }
        }
        let expected = Expected::new(&[2, 4, 2, 3], &wanted).strides(&[24, 1, 12, 4]);
        let tensor = adapter::from_fixed_shape_tensors(&field, array).expect("no nulls");
        (tensor, expected.at(start(&values)).read_only())
    });
}

#[test]
fn a_column_goes_there_and_back() {
    let tensor = Tensor::builder((0..12).collect::<Vec<i32>>()).shape([2, 3, 2]);
    let tensor = tensor.build::<i32>().expect("it fits");
    let data = tensor.data_ptr();
    let (field, array) = adapter::into_fixed_shape_tensors(tensor, "x").expect("exclusive");
    assert_eq!(field.extension_type_name(), Some(TENSOR));
    assert_eq!((field.data_type(), array.len()), (array.data_type(), 2));
    let again = adapter::from_fixed_shape_tensors(&field, array).expect("no nulls");
    assert_eq!((again.shape(), again.data_ptr()), (&[2, 3, 2][..], data));
}

#[test]
fn a_column_of_less_than_an_axis_is_refused() {
    for (tensor, found) in [(Tensor::scalar(1_i32), 0), (Tensor::from(vec![1_i32]), 1)] {
        let error =
            adapter::into_fixed_shape_tensors(tensor, "x").map(drop).expect_err("no axis to count");
        assert_eq!(error, other_ndim(2, found));
    }
}

#[test]
fn a_wrong_field_is_refused() {
    let refuse = |name: &str, metadata: &str| {
        let array = lists(6, numbers(12));
        let field = tensors(name, metadata, &array);
        adapter::from_fixed_shape_tensors(&field, array)
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(refuse(TENSOR, r#"{"shape":[2,3],"permutation":null}"#), Ok(()));
    for metadata in [
        r#"{"shape":[2,2]}"#,
        r#"{"shape":[-2,-3]}"#,
        r#"{"shape":[2.0,3]}"#,
        r#"{"shape":[4294967296,4294967296]}"#,
        r#"{"shape":[18446744073709551615,6]}"#,
        r#"{"shape":[18446744073709551614,18446744073709551613]}"#,
        r#"{"shape":[2,3],"permutation":[0,0]}"#,
        r#"{"shape":[2,3],"permutation":[1]}"#,
        r#"{"shape":[2,3],"permutation":[1,2]}"#,
        r#"{"shape":[2,3],"permutation":[-1,0]}"#,
        r#"{"shape":[2,3],"permutation":6}"#,
        r#"{"shape":[]}"#,
        "[]",
        "{}",
        "",
    ] {
        let error = refuse(TENSOR, metadata).expect_err(metadata);
        assert!(error.contains("expected the extension arrow.fixed_shape_tensor"), "{error}");
    }
    let error = refuse("arrow.uuid", "").expect_err("another extension");
    assert!(error.ends_with(", found the extension arrow.uuid"), "{error}");
    let plain = Field::new("x", DataType::Int32, false);
    assert!(adapter::from_fixed_shape_tensors(&plain, lists(6, numbers(12))).is_err());
}
