//! `arrow` 60: lists of fixed size and columns of tensors, both ways.
//! Buffers and primitive arrays are in `arrow_60.rs`.

use std::collections::HashMap;
use std::sync::Arc;

use super::arrow::adapter;
use super::arrow::array::cast::AsArray;
use super::arrow::array::types::Int32Type;
use super::arrow::array::{Array, ArrayRef, FixedSizeListArray, Int32Array, StringArray};
use super::arrow::buffer::NullBuffer;
use super::arrow::schema::{DataType, Field};
use crate::common::other_rank;
use dlbridge::{DType, Tensor};
use dlbridge_testing::conformance::{self, Expected};

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
    let tensor = Tensor::builder(values).shape(&[2, 3, 4]).build::<i32>().expect("it fits");
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
        let tensor = Tensor::zeros(dtype, &[2, 2]).expect("small");
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
        let builder = Tensor::builder(Vec::<i32>::new()).shape(&[0, huge]);
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
    let tensor = Tensor::builder((0..12).collect::<Vec<i32>>()).shape(&[2, 3, 2]);
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
        assert_eq!(error, other_rank(2, found));
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
