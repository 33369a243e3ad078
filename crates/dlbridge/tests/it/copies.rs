//! Copies of strided memory, around the edges of the tiles that they are made in, and what is
//! computed into new tensors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::{DType, Error, Parts, Tensor};

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
    (&[3, 33, 5], &[-1, 15, 3], 2),
    (&[3, 9, 7], &[1, 28, 4], 1),
    (&[2, 4, 5, 11], &[220, 1, 44, 4], 0),
    (&[2, 77], &[1, 2], 1),
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
fn every_element_of_a_strided_view_is_filled_and_none_between() {
    let tensor = Tensor::builder(vec![0_i16; 60]).shape([3, 4]).strides([1, 10]).offset(5);
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

// Views that are written from other views, and their disjoint parts.

/// 0 to 23 in four layouts of shape 4 x 6.
fn layouts() -> Vec<Tensor> {
    let numbers = || Tensor::from((0..24).collect::<Vec<i32>>());
    let with_gaps = || Tensor::from(vec![0; 96]).reshape([8, 12]).expect("as many");
    let mut gaps = with_gaps().step_by(0, 2).and_then(|part| part.step_by(1, -2)).expect("parts");
    gaps.view_mut::<i32>()
        .and_then(|mut view| view.copy_from_slice(&(0..24).collect::<Vec<_>>()))
        .expect("as many");
    let columns = numbers().reshape([6, 4]).expect("as many").transpose();
    vec![numbers().reshape([4, 6]).expect("as many"), columns, gaps]
}

fn values(tensor: &Tensor) -> Vec<i32> {
    tensor.view::<i32>().expect("int32").to_vec()
}

#[test]
fn every_layout_is_written_from_every_other_one() -> Result<(), Error> {
    for (at, mut target) in layouts().into_iter().enumerate() {
        for source in layouts() {
            let (before, added) = (values(&target), values(&source));
            let other = source.view::<i32>()?;
            target.view_mut::<i32>()?.zip_inplace(&other, |x, y| 100 * x + y)?;
            let expected: Vec<_> = before.iter().zip(&added).map(|(x, y)| 100 * x + y).collect();
            assert_eq!(values(&target), expected, "layout {at}");
            target.view_mut::<i32>()?.assign(&other)?;
            assert_eq!(values(&target), added);
        }
    }
    Ok(())
}

#[cfg(feature = "rayon")]
#[test]
fn many_threads_write_the_same_as_one() -> Result<(), Error> {
    for source in layouts() {
        let row = source.as_tensor_ref().select(0, 1)?;
        for other in [source.view::<i32>()?, row.view::<i32>()?] {
            for (mut serial, mut parallel) in layouts().into_iter().zip(layouts()) {
                serial.view_mut::<i32>()?.zip_inplace(&other, |x, y| 100 * x + y)?;
                parallel.view_mut::<i32>()?.par_zip_inplace(&other, |x, y| 100 * x + y)?;
                assert_eq!(values(&serial), values(&parallel));
            }
        }
    }
    Ok(())
}

#[test]
fn shapes_that_do_not_fit_are_refused() -> Result<(), Error> {
    let mut target = Tensor::from(vec![1; 6]).reshape([2, 3])?;
    let two = Tensor::from([7, 8]);
    for shape in [&[2][..], &[1, 2], &[2, 1, 1]] {
        let other = two.as_tensor_ref().reshape(shape)?;
        let error = target.view_mut::<i32>()?.assign(&other.view()?).unwrap_err();
        assert!(matches!(error, Error::Part { .. }), "{error}");
    }
    target.view_mut::<i32>()?.assign(&two.as_tensor_ref().reshape([2, 1])?.view()?)?;
    assert_eq!(values(&target), [7, 7, 7, 8, 8, 8]);
    target.view_mut::<i32>()?.assign(&Tensor::scalar(5).view()?)?;
    assert_eq!(values(&target), [5; 6]);
    let nothing = Tensor::from(Vec::<i32>::new()).reshape([0, 3])?;
    assert!(target.view_mut::<i32>()?.assign(&nothing.view()?).is_err());
    Ok(())
}

#[test]
fn chunks_are_all_elements_once() -> Result<(), Error> {
    for mut tensor in layouts() {
        let before = values(&tensor);
        for (axis, size, count) in [(0, 1, 4), (0, 3, 2), (1, 4, 2), (1, 6, 1), (1, usize::MAX, 1)]
        {
            let view = tensor.view_mut::<i32>()?;
            let chunks = view.into_chunks(axis, size)?;
            assert_eq!(chunks.len(), count);
            chunks.for_each(|mut chunk| {
                let one = Tensor::scalar(1);
                chunk
                    .zip_inplace(&one.view().expect("int32"), |x, y: i32| x + y)
                    .expect("a scalar");
            });
        }
        assert_eq!(values(&tensor), before.iter().map(|value| value + 5).collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
fn chunks_of_nothing_and_of_what_overlaps() -> Result<(), Error> {
    let mut tensor = Tensor::from(vec![1, 2]);
    assert!(tensor.view_mut::<i32>()?.into_chunks(0, 0).is_err());
    assert!(tensor.view_mut::<i32>()?.into_chunks(1, 1).is_err());
    let mut empty = Tensor::from(Vec::<i32>::new());
    assert_eq!(empty.view_mut::<i32>()?.into_chunks(0, 2)?.count(), 0);
    // Lazily: there are 2^40 of them.
    let mut long = Tensor::from(Vec::<i32>::new()).reshape([1_i64 << 40, 0])?;
    assert_eq!(long.view_mut::<i32>()?.into_chunks(0, 1)?.take(3).count(), 3);
    let windows = Tensor::builder(vec![1, 2, 3]).shape([2, 2]).strides([1, 1]);
    let mut windows = windows.build::<i32>()?;
    let error = windows.view_mut::<i32>()?.into_chunks(0, 1).unwrap_err();
    assert_eq!(error, Error::Overlapping);
    Ok(())
}

/// Up to 960 bytes, memory is cleared by the library, and beyond by the allocator.
#[test]
fn zeros_of_each_size_are_zeros_where_other_values_were() {
    for size in (0..80).chain(940..1040) {
        let mut used = Tensor::zeros(DType::U8, [size]).expect("memory");
        used.as_slice_mut::<u8>().expect("exclusive").fill(7);
        drop(used);
        let tensor = Tensor::zeros(DType::U8, [size]).expect("memory");
        let bytes = tensor.as_slice::<u8>().expect("exclusive");
        assert!(bytes.iter().all(|&byte| byte == 0) && bytes.len() as i64 == size, "{size}");
        assert_eq!(tensor.data_ptr().addr() % 64, 0, "{size}");
    }
}
