//! `faer` 0.24: matrices, columns, rows and views to tensors, and tensors to views and copies.
//! Layouts that only foreign descriptors have come from the suite's odd tensors.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use std::sync::Arc;

use crate::common::{import, is_no_matrix, other_ndim, take_back};
use dlbridge::{Access, DType, Error, Tensor, TensorMut, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};
use faer::{Col, ColMut, ColRef, Mat, MatMut, MatRef, Row, RowRef, mat};

const SIX: [i32; 6] = [1, 2, 3, 4, 5, 6];

/// What a matrix has to look like as a tensor: its own pointer, shape, strides and values.
fn looks(matrix: MatRef<'_, i32>) -> Expected<i32> {
    let (rows, columns) = matrix.shape();
    let at = |i, j| matrix[(i, j)];
    let values: Vec<i32> = (0..rows).flat_map(|i| (0..columns).map(move |j| at(i, j))).collect();
    let strides = [matrix.row_stride() as i64, matrix.col_stride() as i64];
    Expected::new(&[rows as i64, columns as i64], &values).strides(&strides).at(matrix.as_ptr())
}

fn looks_like_column(column: ColRef<'_, i32>) -> Expected<i32> {
    let values: Vec<i32> = column.iter().copied().collect();
    let strides = [column.row_stride() as i64];
    Expected::new(&[column.nrows() as i64], &values).strides(&strides).at(column.as_ptr())
}

fn looks_like_row(row: RowRef<'_, i32>) -> Expected<i32> {
    looks_like_column(row.transpose())
}

fn counted(rows: usize, columns: usize) -> Mat<i32> {
    Mat::from_fn(rows, columns, |i, j| (i * columns + j + 1) as i32)
}

fn six(strides: &[i64], at: usize) -> Tensor {
    let builder = Tensor::builder(SIX).shape([2, 3]).strides(strides).offset(at);
    builder.build::<i32>().expect("it fits")
}

/// A matrix by rows, each element asked for by its index.
fn by_rows<T: Copy>(matrix: MatRef<'_, T>) -> Vec<T> {
    let (rows, columns) = matrix.shape();
    (0..rows).flat_map(|i| (0..columns).map(move |j| matrix[(i, j)])).collect()
}

#[test]
fn matrices_conform() {
    for (rows, columns) in [(2, 3), (1, 5), (5, 1), (17, 2), (0, 3), (3, 0), (0, 0)] {
        conformance::owner(|| {
            let matrix = counted(rows, columns);
            let expected = looks(matrix.as_ref());
            (Tensor::from(matrix), expected)
        });
        conformance::owner(|| {
            let matrix = Arc::new(counted(rows, columns));
            let expected = looks((*matrix).as_ref()).read_only();
            (Tensor::from(matrix), expected)
        });
        let mut matrix = counted(rows, columns);
        let expected = looks(matrix.as_ref());
        conformance::borrowed(&TensorRef::from(&matrix), &expected);
        conformance::borrowed(&TensorRef::from(&matrix.as_ref()), &expected);
        conformance::borrowed(&TensorRef::from(&matrix.as_mut()), &expected);
        TensorMut::from(&mut matrix).view_mut::<i32>().expect("exclusive").map_inplace(|x| -x);
        let mut view = matrix.as_mut();
        TensorMut::from(&mut view).view_mut::<i32>().expect("exclusive").map_inplace(|x| 2 * x);
        let wanted: Vec<i32> = (1..=(rows * columns) as i32).map(|x| -2 * x).collect();
        assert_eq!(by_rows(matrix.as_ref()), wanted);
    }
}

#[test]
fn columns_and_rows_conform() {
    for len in [0, 1, 5, 17] {
        let column = || Col::from_fn(len, |i| i as i32);
        conformance::owner(|| {
            let column = column();
            let expected = looks_like_column(column.as_ref());
            (Tensor::from(column), expected)
        });
        let row = || Row::from_fn(len, |i| i as i32);
        conformance::owner(|| {
            let row = row();
            let expected = looks_like_row(row.as_ref());
            (Tensor::from(row), expected)
        });
        let (mut column, mut row) = (column(), row());
        conformance::borrowed(&TensorRef::from(&column), &looks_like_column(column.as_ref()));
        conformance::borrowed(&TensorRef::from(&row), &looks_like_row(row.as_ref()));
        TensorMut::from(&mut column).view_mut::<i32>().expect("exclusive").fill(7);
        TensorMut::from(&mut row).view_mut::<i32>().expect("exclusive").fill(7);
        TensorMut::from(&mut column.as_mut())
            .view_mut::<i32>()
            .expect("exclusive")
            .map_inplace(|x| x + 1);
        TensorMut::from(&mut row.as_mut())
            .view_mut::<i32>()
            .expect("exclusive")
            .map_inplace(|x| x + 1);
        assert!(column.iter().chain(row.iter()).all(|&x| x == 8));
    }
}

#[test]
fn views_of_parts_conform() {
    let matrix = counted(4, 6);
    for view in [
        matrix.submatrix(1, 2, 2, 3),
        matrix.transpose(),
        matrix.reverse_rows(),
        matrix.reverse_rows_and_cols(),
        matrix.submatrix(1, 2, 2, 3).transpose().reverse_cols(),
    ] {
        conformance::borrowed(&TensorRef::from(&view), &looks(view));
    }
    let (column, row) = (matrix.col(2), matrix.row(2));
    conformance::borrowed(&TensorRef::from(&column), &looks_like_column(column));
    conformance::borrowed(&TensorRef::from(&row), &looks_like_row(row));
    let reversed = row.reverse_cols();
    conformance::borrowed(&TensorRef::from(&reversed), &looks_like_row(reversed));
}

#[test]
fn a_matrix_comes_back_out_as_it_was() {
    let matrix = counted(2, 3);
    let data = matrix.as_ptr();
    let mut tensor = Tensor::from(matrix);
    tensor.view_mut_as::<MatMut<i32>>().expect("exclusive").fill(5);
    let again: Mat<i32> = tensor.into_owner().expect("it is the owner");
    assert_eq!((again.as_ptr(), by_rows(again.as_ref())), (data, vec![5; 6]));
}

#[test]
fn a_view_is_the_tensors_own_memory() {
    for (strides, at) in [([3, 1], 0), ([1, 2], 0), ([-3, -1], 5), ([-1, 2], 1), ([3, -1], 2)] {
        let mut tensor = six(&strides, at);
        let wanted = tensor.view::<i32>().expect("host").to_vec();
        let data = tensor.data_ptr().cast::<i32>();
        let view = tensor.view_as::<MatRef<i32>>().expect("exclusive");
        assert_eq!((by_rows(view), view.as_ptr()), (wanted.clone(), data.cast_const()));
        assert_eq!([view.row_stride() as i64, view.col_stride() as i64], strides);
        assert_eq!(by_rows(tensor.copy_as::<Mat<i32>>().expect("host").as_ref()), wanted);
        let mut view = tensor.view_mut_as::<MatMut<i32>>().expect("exclusive");
        view[(1, 2)] = 60;
        view.row_mut(0).fill(0);
        let again = tensor.view::<i32>().expect("host").to_vec();
        assert_eq!(again, [0, 0, 0, wanted[3], wanted[4], 60], "{strides:?}");
    }
}

#[test]
fn products_over_odd_strides_are_right() {
    let values: [f64; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    for (strides, at) in [([3, 1], 0), ([1, 2], 0), ([-3, -1], 5), ([3, -1], 2), ([0, 2], 0)] {
        let builder = Tensor::builder(values).shape([2, 3]).strides(strides).offset(at);
        let tensor = builder.build::<f64>().expect("it fits");
        let (view, copy) = (tensor.view_as::<MatRef<f64>>(), tensor.copy_as::<Mat<f64>>());
        let (view, copy) = (view.expect("exclusive"), copy.expect("host"));
        assert_eq!(view * view.transpose(), &copy * copy.transpose(), "{strides:?}");
        assert_eq!(view.norm_l2(), copy.norm_l2(), "{strides:?}");
        assert_eq!(view + view, &copy + &copy, "{strides:?}");
    }
}

#[test]
fn views_take_every_layout_that_others_do_not_write() {
    let refused = conformance::reader(|tensor| match tensor.ndim() {
        1 => Ok(tensor.view_as::<ColRef<f64>>()?.iter().copied().collect()),
        _ => Ok(by_rows(tensor.view_as::<MatRef<f64>>()?)),
    });
    for refusal in &refused {
        match refusal.tensor {
            "contiguous, shared" => assert_eq!(refusal.error, Error::SharedMemory),
            "odd address" => assert!(matches!(refusal.error, Error::Misaligned { .. })),
            other => {
                let ndim = is_no_matrix(&refusal.error);
                assert!(ndim, "{other}: {}", refusal.error);
            }
        }
    }
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    assert!(!names.contains(&"reversed") && !names.contains(&"broadcast"), "{names:?}");
    let refused = conformance::reader(|tensor| match tensor.ndim() {
        1 => Ok(tensor.copy_as::<Col<bool>>()?.iter().copied().collect()),
        _ => Ok(by_rows(tensor.copy_as::<Mat<bool>>()?.as_ref())),
    });
    let other = |error: &Error| !is_no_matrix(error);
    assert!(!refused.iter().any(|refusal| other(&refusal.error)), "{refused:?}");
}

#[test]
fn each_class_allows_its_own_borrows() {
    for class in [Access::Shared, Access::Exclusive, Access::Frozen] {
        let mut tensor = import(Foreign::new(&[2, 3], &SIX).class(class)).expect("legal");
        let access = tensor.access();
        let read = tensor.view_as::<MatRef<i32>>().map(|_| ());
        let write = tensor.view_mut_as::<MatMut<i32>>().map(|_| ());
        let (can_read, can_write) = match access {
            Access::Exclusive => (Ok(()), Ok(())),
            Access::Frozen => (Ok(()), Err(Error::ReadOnly)),
            Access::Shared => (Err(Error::SharedMemory), Err(Error::SharedMemory)),
        };
        assert_eq!((read, write), (can_read, can_write), "{access}");
        // SAFETY: nobody writes.
        let view = unsafe { tensor.assume_frozen() }.into_as::<MatRef<i32>>();
        assert_eq!(by_rows(view.expect("the class is not looked at")), SIX, "{access}");
        // SAFETY: nobody else has the elements.
        let view =
            unsafe { tensor.assume_exclusive() }.and_then(|tensor| tensor.into_as::<MatMut<i32>>());
        let refused = view.map(|_| ()).err();
        assert_eq!(refused, (access == Access::Frozen).then_some(Error::ReadOnly));
        let mut column = import(Foreign::new(&[6], &SIX).class(class)).expect("legal");
        assert_eq!(column.view_as::<ColRef<i32>>().is_ok(), access != Access::Shared, "{access}");
        assert_eq!(
            column.view_mut_as::<ColMut<i32>>().is_ok(),
            access == Access::Exclusive,
            "{access}"
        );
    }
}

#[test]
fn another_ndim_dtype_or_device_is_refused() {
    let tensor = six(&[3, 1], 0);
    let wanted = other_ndim(1, 2);
    assert_eq!(tensor.view_as::<ColRef<i32>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Col<i32>>().map(|_| ()), Err(wanted));
    let scalar = Tensor::scalar(1);
    let wanted = other_ndim(2, 0);
    assert_eq!(scalar.view_as::<MatRef<i32>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(scalar.copy_as::<Mat<i32>>().map(|_| ()), Err(wanted));
    let wanted = Error::DTypeMismatch { found: DType::I32, expected: DType::F32 };
    assert_eq!(tensor.view_as::<MatRef<f32>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Mat<f32>>().map(|_| ()), Err(wanted));
    let device = "cuda:0".parse().expect("a name");
    let tensor = import(Foreign::new(&[2, 3], &SIX).device(device).class(Access::Exclusive));
    let refused = tensor.expect("legal").view_as::<MatRef<i32>>().map(|_| ());
    assert_eq!(refused, Err(Error::NotHostAccessible { device }));
}

#[test]
fn overlapping_elements_are_read_but_not_borrowed_mutably() {
    for (strides, at) in [([0, 1], 0), ([1, 1], 0), ([1, 0], 0), ([-1, 1], 1)] {
        let mut tensor = six(&strides, at);
        let wanted = tensor.view::<i32>().expect("host").to_vec();
        assert_eq!(
            by_rows(tensor.view_as::<MatRef<i32>>().expect("exclusive")),
            wanted,
            "{strides:?}"
        );
        assert_eq!(tensor.view_mut_as::<MatMut<i32>>().map(|_| ()), Err(Error::Overlapping));
    }
    let builder = Tensor::builder([1_i32]).shape([4]).strides([0]);
    let mut tensor = builder.build::<i32>().expect("it fits");
    assert_eq!(tensor.view_mut_as::<ColMut<i32>>().map(|_| ()), Err(Error::Overlapping));
}

#[test]
fn odd_strides_that_no_element_uses_are_no_obstacle() {
    let make = |shape: &[i64], strides: &[i64]| {
        let foreign = Foreign::new(shape, &SIX).strides(strides).class(Access::Exclusive);
        import(foreign).expect("legal")
    };
    let mut tensor = make(&[1, 3], &[i64::MIN, 1]);
    assert_eq!(by_rows(tensor.view_as::<MatRef<i32>>().expect("exclusive")), [1, 2, 3]);
    tensor.view_mut_as::<MatMut<i32>>().expect("exclusive").reverse_rows_mut().fill(0);
    let tensor = make(&[5, 0], &[i64::MIN, i64::MIN]);
    assert_eq!(tensor.view_as::<MatRef<i32>>().expect("empty").reverse_rows().shape(), (5, 0));
}

#[test]
fn columns_between_those_of_a_view_stay_with_their_holder() {
    let mut matrix = counted(3, 4);
    let (ours, mut theirs) = matrix.as_mut().split_at_col_mut(2);
    let mut ours = ours.reverse_rows_mut();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || (0..100).for_each(|_| theirs.fill(7)));
        let mut tensor = TensorMut::from(&mut ours);
        assert_eq!(
            by_rows(tensor.view_as::<MatRef<i32>>().expect("exclusive")),
            [9, 10, 5, 6, 1, 2]
        );
        tensor.view_mut_as::<MatMut<i32>>().expect("exclusive").row_mut(0).fill(0);
        writer.join().expect("no panic");
    });
    assert_eq!(matrix, mat![[1, 2, 7, 7], [5, 6, 7, 7], [0, 0, 7, 7]]);
}

#[test]
fn a_matrix_given_away_is_released_once_on_another_thread() {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).shape([2, 3]).build::<i32>().expect("it fits");
    assert_eq!(tensor.view_as::<MatRef<i32>>().expect("exclusive")[(1, 2)], 6);
    drops.expect(0, "before the drop");
    std::thread::spawn(move || drop(tensor)).join().expect("no panic");
    drops.expect(1, "after the drop");
    let tensor = take_back(Tensor::from(counted(2, 3)).into_raw());
    assert_eq!(tensor.view_as::<MatRef<i32>>().map(|_| ()), Err(Error::SharedMemory));
    assert_eq!(tensor.copy_as::<Mat<i32>>(), Ok(counted(2, 3)));
}
