//! Copies of strided memory, around the edges of the tiles that they are made in, and what is
//! computed into new tensors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::{DType, Tensor};

use crate::common::{indices, offset, other_extent};

/// Layouts over `SIZE` elements, from element `start` on.
const SIZE: usize = 40_000;
const LAYOUTS: &[(&[i64], &[i64], usize)] = &[
    (&[7, 9], &[1, 7], 0),
    (&[8, 8], &[1, 8], 3),
    (&[9, 300], &[1, 9], 0),
    (&[300, 9], &[1, 300], 1),
    (&[65, 129], &[1, 65], 0),
    (&[64, 128], &[-1, 64], 63),
    (&[64, 128], &[1, -64], 127 * 64),
    (&[17, 16, 15], &[1, 17, 17 * 16], 0),
    (&[17, 16, 15], &[16, 1, 17 * 16], 5),
    (&[3, 50, 50], &[1, 150, 3], 0),
    (&[50, 50, 3], &[50, 1, 2500], 0),
    (&[20, 30], &[0, 0], 7),
    (&[30, 40], &[1, 0], 7),
    (&[30, 40], &[0, 2], 7),
    (&[100, 3], &[4, 1], 0),
    (&[100, 33], &[40, 1], 0),
    (&[5000], &[-8], 39_999),
    (&[2, 3, 4, 5, 6], &[1, 2, 6, 24, 120], 11),
    (&[1, 200, 1, 3], &[9, 1, 9, 200], 0),
];

/// The bytes of elements of `size` bytes, by their indices alone.
fn by_index(bytes: &[u8], size: usize, shape: &[i64], strides: &[i64], start: usize) -> Vec<u8> {
    let places = indices(shape).into_iter().map(|index| {
        let place = start.wrapping_add_signed(offset(&index, strides) as isize);
        &bytes[place * size..][..size]
    });
    places.collect::<Vec<_>>().concat()
}

#[test]
fn strided_elements_of_every_size_are_copied_in_row_major_order() {
    let sizes = [
        (DType::U8, 1),
        (DType::U16, 2),
        (DType::U8.with_lanes(3), 3),
        (DType::F32, 4),
        (DType::U16.with_lanes(3), 6),
        (DType::F64, 8),
        (DType::COMPLEX128, 16),
        (DType::F64.with_lanes(3), 24),
    ];
    for (dtype, size) in sizes {
        let bytes: Vec<u8> = (0..SIZE * size).map(|i| (i * 31 / 7) as u8).collect();
        for &(shape, strides, start) in LAYOUTS {
            let tensor = Tensor::builder(bytes.clone()).dtype(dtype).shape(shape);
            let tensor = tensor.strides(strides).offset(start).build().expect("inside the memory");
            let copy = tensor.to_contiguous().expect("host memory");
            let wanted = by_index(&bytes, size, shape, strides, start);
            assert!(copy.is_contiguous() && copy.shape() == shape);
            assert_eq!(
                copy.as_bytes().expect("exclusive"),
                wanted,
                "{dtype} {shape:?} {strides:?}"
            );
        }
    }
}

#[test]
fn typed_copies_and_computed_tensors_agree_with_reading_by_index() {
    let values: Vec<u32> = (0..SIZE as u32).collect();
    for &(shape, strides, start) in LAYOUTS {
        let tensor = Tensor::builder(values.clone()).shape(shape).strides(strides).offset(start);
        let tensor = tensor.build().expect("inside the memory");
        let view = tensor.view::<u32>().expect("the dtype");
        let wanted: Vec<u32> =
            indices(shape).iter().map(|index| view.get(index).expect("inside")).collect();
        assert_eq!(view.to_vec(), wanted, "{shape:?} {strides:?}");
        let doubled = view.map_to_tensor(|x| u64::from(x) * 2).expect("memory");
        assert_eq!(doubled.shape(), shape);
        assert!(doubled.data_ptr().addr() % 64 == 0);
        assert!(doubled.as_slice::<u64>().expect("exclusive").iter().eq(&doubled_of(&wanted)));
        let other = doubled.view::<u64>().expect("the dtype");
        let sum = view.zip_to_tensor(&other, |x, y| u64::from(x) + y).expect("one shape");
        let tripled: Vec<_> = wanted.iter().map(|x| u64::from(*x) * 3).collect();
        assert_eq!(sum.as_slice::<u64>().expect("exclusive"), tripled);
    }
}

fn doubled_of(values: &[u32]) -> Vec<u64> {
    values.iter().map(|x| u64::from(*x) * 2).collect()
}

#[test]
fn truth_values_of_strange_bytes_are_copied_as_truth_values() {
    let bytes: Vec<u8> = (0..=255).collect();
    let tensor = Tensor::builder(bytes).dtype(DType::BOOL).shape(&[16, 16]).strides(&[1, 16]);
    let tensor = tensor.build().expect("a byte each");
    let values = tensor.view::<bool>().expect("the dtype").to_vec();
    assert_eq!(values.iter().filter(|value| !**value).count(), 1);
}

#[test]
fn every_element_of_a_strided_view_is_filled_and_none_between() {
    let tensor = Tensor::builder(vec![0_i16; 60]).shape(&[3, 4]).strides(&[1, 10]).offset(5);
    let mut tensor = tensor.build().expect("inside the memory");
    tensor.view_mut::<i16>().expect("exclusive").fill(7);
    let owner: Vec<i16> = tensor.into_owner().expect("of a vector");
    let filled: Vec<usize> = (0..60).filter(|&i| owner[i] == 7).collect();
    assert_eq!(filled, [5, 6, 7, 15, 16, 17, 25, 26, 27, 35, 36, 37]);
}

#[test]
fn a_panic_while_computing_leaves_nothing_behind() {
    let tensor = Tensor::from(vec![1, 2, 3]);
    let view = tensor.view::<i32>().expect("the dtype");
    let result = catch_unwind(AssertUnwindSafe(|| {
        view.map_to_tensor(|x| if x == 3 { panic!("at 3") } else { x })
    }));
    assert!(result.is_err());
}

#[test]
fn views_of_two_shapes_are_refused() {
    let (a, b) = (Tensor::from([1, 2, 3]), Tensor::from([1, 2]));
    let (a, b) = (a.view::<i32>().expect("i32"), b.view::<i32>().expect("i32"));
    let error = a.zip_to_tensor(&b, |a, b| a + b).expect_err("another shape");
    assert_eq!(error, other_extent(0, 3, 2));
}
