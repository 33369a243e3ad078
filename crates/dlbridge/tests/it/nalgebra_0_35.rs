//! `nalgebra` 0.35, both ways. Layouts that only foreign descriptors have come from the suite.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use crate::common::{import, is_no_matrix, other_extent, other_ndim, take_back};
use dlbridge::nalgebra_0_35::Transposed;
use dlbridge::{Access, DType, Error, Tensor, TensorMut, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};
use nalgebra::{
    Const, DMatrix, DMatrixView, DMatrixViewMut, DVector, DVectorView, Dim, Dyn, Matrix, Matrix2x3,
    MatrixView, MatrixViewMut, OMatrix, RawStorage, RawStorageMut, RowDVector, SMatrix, Scalar, U1,
    U2, U3, Vector2, Vector3,
};
use std::sync::Arc;

const SIX: [i32; 6] = [1, 2, 3, 4, 5, 6];

/// What a matrix has to look like as a tensor: its own pointer, shape, strides and values.
fn looks<R: Dim, C: Dim, S: RawStorage<i32, R, C>>(matrix: &Matrix<i32, R, C, S>) -> Expected<i32> {
    let (rows, columns) = matrix.shape();
    let at = |i, j| matrix[(i, j)];
    let values: Vec<i32> = (0..rows).flat_map(|i| (0..columns).map(move |j| at(i, j))).collect();
    let axes = if C::is::<U1>() { 1 } else { 2 };
    let shape = [rows as i64, columns as i64];
    let strides = <[usize; 2]>::from(matrix.strides()).map(|stride| stride as i64);
    Expected::new(&shape[..axes], &values).strides(&strides[..axes]).at(matrix.as_ptr())
}

/// All conversions of one owned matrix whose elements lie in the heap, made as often as need be.
#[track_caller]
fn conforms<R, C, S>(make: impl Fn() -> Matrix<i32, R, C, S>)
where
    R: Dim,
    C: Dim,
    S: RawStorageMut<i32, R, C> + Send + Sync + 'static,
{
    conformance::owner(|| {
        let matrix = make();
        let expected = looks(&matrix);
        (Tensor::from(matrix), expected)
    });
    shared_and_borrowed_conform(make);
}

#[track_caller]
fn shared_and_borrowed_conform<R, C, S>(make: impl Fn() -> Matrix<i32, R, C, S>)
where
    R: Dim,
    C: Dim,
    S: RawStorageMut<i32, R, C> + Send + Sync + 'static,
{
    conformance::owner(|| {
        let matrix = Arc::new(make());
        let expected = looks(&matrix).read_only();
        (Tensor::from(matrix), expected)
    });
    let mut matrix = make();
    let expected = looks(&matrix);
    conformance::borrowed(&TensorRef::from(&matrix), &expected);
    let (data, before) = (matrix.as_ptr(), matrix.iter().sum::<i32>());
    let mut tensor = TensorMut::from(&mut matrix);
    assert_eq!((tensor.data_ptr().cast_const().cast(), tensor.is_read_only()), (data, false));
    tensor.view_mut::<i32>().expect("exclusive").map_inplace(|x| x + 1000);
    assert_eq!(matrix.iter().sum::<i32>(), before + 1000 * matrix.len() as i32);
}

#[test]
fn matrices_and_vectors_conform() {
    conforms(|| DMatrix::from_row_slice(2, 3, &SIX));
    conforms(|| DMatrix::from_row_slice(1, 6, &SIX));
    conforms(|| DMatrix::from_row_slice(6, 1, &SIX));
    conforms(|| DVector::from_row_slice(&SIX));
    conforms(|| RowDVector::from_row_slice(&SIX));
}

#[test]
fn matrices_without_elements_conform() {
    conforms(|| DMatrix::<i32>::zeros(0, 0));
    conforms(|| DMatrix::<i32>::zeros(0, 3));
    conforms(|| DMatrix::<i32>::zeros(3, 0));
    conforms(|| DVector::<i32>::zeros(0));
}

#[test]
fn a_type_of_one_column_and_no_other_has_one_axis() {
    let shape = |tensor: &Tensor| tensor.shape().to_vec();
    assert_eq!(shape(&Tensor::from(DVector::from_row_slice(&SIX))), [6]);
    assert_eq!(shape(&Tensor::from(Vector3::new(1, 2, 3))), [3]);
    assert_eq!(shape(&Tensor::from(RowDVector::from_row_slice(&SIX))), [1, 6]);
    assert_eq!(shape(&Tensor::from(DMatrix::from_row_slice(6, 1, &SIX))), [6, 1]);
    assert_eq!(shape(&Tensor::from(SMatrix::<i32, 1, 1>::new(7))), [1]);
}

#[test]
fn static_matrices_move_into_the_tensor() {
    conformance::owner(|| {
        let expected = Expected::new(&[2, 3], &SIX).strides(&[1, 2]);
        (Tensor::from(Matrix2x3::from_row_slice(&SIX)), expected)
    });
    conformance::owner(|| (Tensor::from(Vector3::new(1, 2, 3)), Expected::new(&[3], &[1, 2, 3])));
    shared_and_borrowed_conform(|| Matrix2x3::from_row_slice(&SIX));
    let tensor = Tensor::from(Matrix2x3::from_row_slice(&SIX));
    let again = tensor.into_owner::<Matrix2x3<i32>>().expect("it is the owner");
    assert_eq!(again, Matrix2x3::from_row_slice(&SIX));
}

#[test]
fn a_matrix_comes_back_out_as_it_was() {
    let matrix = DMatrix::from_row_slice(2, 3, &SIX);
    let data = matrix.as_ptr();
    let mut tensor = Tensor::from(matrix);
    tensor.view_mut_as::<DMatrixViewMut<i32>>().expect("exclusive").apply(|x| *x *= 2);
    let again: DMatrix<i32> = tensor.into_owner().expect("it is the owner");
    assert_eq!(again.as_ptr(), data);
    assert_eq!(again, DMatrix::from_row_slice(2, 3, &SIX.map(|x| 2 * x)));
}

#[test]
fn views_of_parts_conform() {
    let mut matrix = DMatrix::from_fn(4, 6, |i, j| (i * 6 + j) as i32);
    let part = matrix.view_with_steps((1, 1), (2, 2), (1, 2));
    conformance::borrowed(&TensorRef::from(&part), &looks(&part));
    conformance::borrowed(&TensorRef::from(&matrix.row(2)), &looks(&matrix.row(2)));
    conformance::borrowed(&TensorRef::from(&matrix.column(2)), &looks(&matrix.column(2)));
    let (mut left, right) = matrix.columns_range_pair_mut(..2, 4..);
    let mut tensor = TensorMut::from(&mut left);
    assert_eq!((tensor.shape(), tensor.strides()), (&[4, 2][..], &[1, 4][..]));
    tensor.view_mut::<i32>().expect("exclusive").fill(-1);
    assert!(left.iter().all(|&x| x == -1) && right.iter().all(|&x| x >= 0));
}

#[test]
fn static_views_are_described_too() {
    let matrix = Matrix2x3::from_row_slice(&SIX);
    let part = matrix.fixed_view::<2, 2>(0, 1);
    let tensor = TensorRef::from(&part);
    assert_eq!((tensor.shape(), tensor.strides()), (&[2, 2][..], &[1, 2][..]));
    assert_eq!(tensor.copy_as::<OMatrix<i32, U2, U2>>(), Ok(part.into_owned()));
}

#[test]
fn a_view_is_the_tensors_own_memory() {
    let mut tensor = Tensor::from(DMatrix::from_row_slice(2, 3, &SIX));
    let data = tensor.data_ptr().cast::<i32>();
    let view = tensor.view_as::<DMatrixView<i32>>().expect("exclusive");
    assert_eq!((view.as_ptr(), view.strides()), (data.cast_const(), (1, 2)));
    assert_eq!(view, Matrix2x3::from_row_slice(&SIX));
    let mut view = tensor.view_mut_as::<MatrixViewMut<i32, U2, U3, U1, Dyn>>().expect("exclusive");
    view[(1, 2)] = 60;
    view.row_mut(0).fill(0);
    view.column_mut(1).axpy(10, &Vector2::new(1, 1), 1);
    let wanted = Matrix2x3::from_row_slice(&[0, 10, 0, 4, 15, 60]);
    assert_eq!(tensor.copy_as::<OMatrix<i32, U2, U3>>(), Ok(wanted));
}

#[test]
fn a_row_major_tensor_is_viewed_as_its_transpose() {
    let mut tensor = Tensor::builder(SIX).shape([2, 3]).build::<i32>().expect("it fits");
    let data = tensor.data_ptr().cast::<i32>();
    let wanted = Error::StrideMismatch {
        axis: 0,
        stride: 3,
        expected: "1 along a column (if row-major, use `Transposed`)",
    };
    assert_eq!(tensor.view_as::<DMatrixView<i32>>().map(|_| ()), Err(wanted.clone()));
    assert_eq!(
        tensor.view_mut_as::<MatrixViewMut<i32, U2, U3, U1, Dyn>>().map(|_| ()),
        Err(wanted)
    );
    let Transposed(view) =
        tensor.view_as::<Transposed<MatrixView<i32, U3, Dyn, U1, Dyn>>>().expect("exclusive");
    assert_eq!((view.as_ptr(), view.strides()), (data.cast_const(), (1, 3)));
    assert_eq!(view.transpose(), Matrix2x3::from_row_slice(&SIX));
    let Transposed(mut view) = tensor
        .view_mut_as::<Transposed<MatrixViewMut<i32, Dyn, U2, U1, Dyn>>>()
        .expect("exclusive");
    view.column_mut(1).fill(0);
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2, 3, 0, 0, 0][..]));
    let refused = tensor.view_as::<Transposed<MatrixView<i32, U2, Dyn, U1, Dyn>>>().map(|_| ());
    assert_eq!(refused, Err(other_extent(1, 2, 3)));
    let vector = Tensor::from(SIX);
    let refused = vector.view_as::<Transposed<DVectorView<i32>>>().map(|_| ());
    assert_eq!(refused, Err(other_ndim(2, 1)));
}

/// The elements of a matrix in row-major order, each asked for by its index.
fn by_rows<T: Scalar + Copy, S: RawStorage<T, Dyn, C>, C: Dim>(
    matrix: &Matrix<T, Dyn, C, S>,
) -> Vec<T> {
    let (rows, columns) = matrix.shape();
    (0..rows).flat_map(|i| (0..columns).map(move |j| matrix[(i, j)])).collect()
}

#[test]
fn views_take_columns_that_nobody_writes() {
    let refused = conformance::reader(|tensor| match tensor.ndim() {
        1 => Ok(by_rows(&tensor.view_as::<DVectorView<f64>>()?)),
        _ => {
            let view = tensor.view_as::<DMatrixView<f64>>()?;
            // nalgebra's own iterator, which counts on its strides, goes by columns
            let (values, by_columns) = (by_rows(&view), view.transpose());
            assert_eq!(by_columns.iter().copied().collect::<Vec<_>>(), values);
            Ok(values)
        }
    });
    let taken = [
        "column-major",
        "one axis",
        "no elements",
        "no elements, null data",
        "pinned",
        "extent 1, odd stride",
    ];
    for refusal in &refused {
        let wanted = match refusal.tensor {
            "odd address" => matches!(refusal.error, Error::Misaligned { .. }),
            "contiguous, shared" => refusal.error == Error::SharedMemory,
            "0-d" | "0-d, null lists" | "3-d" | "9-d" | "no elements, odd strides" => {
                is_no_matrix(&refusal.error)
            }
            _ => matches!(refusal.error, Error::StrideMismatch { axis: 0, .. }),
        };
        assert!(wanted, "{}: {}", refusal.tensor, refusal.error);
        assert!(!taken.contains(&refusal.tensor), "{}: {}", refusal.tensor, refusal.error);
    }
}

#[test]
fn transposed_views_take_rows_that_nobody_writes() {
    let refused = conformance::reader(|tensor| {
        let Transposed(view) = tensor.view_as::<Transposed<DMatrixView<u16>>>()?;
        Ok(view.iter().copied().collect::<Vec<_>>())
    });
    let error = |name| refused.iter().find(|refusal| refusal.tensor == name).map(|r| &r.error);
    let taken = "contiguous|contiguous, read-only|null strides|broadcast|sliding windows";
    for name in taken.split('|') {
        assert_eq!(error(name), None, "{name}");
    }
    let wanted = Error::StrideMismatch { axis: 0, stride: -4, expected: "0 or more" };
    assert_eq!(error("rows reversed"), Some(&wanted));
    let wanted = Error::StrideMismatch {
        axis: 1,
        stride: 3,
        expected: "1 along a column (if row-major, use `Transposed`)",
    };
    assert_eq!(error("column-major"), Some(&wanted));
}

#[test]
fn copies_take_every_layout_of_two_axes() {
    let refused = conformance::reader(|tensor| {
        let copy = tensor.copy_as::<OMatrix<i16, Dyn, Dyn>>()?.transpose();
        Ok(copy.iter().copied().collect::<Vec<_>>())
    });
    let other = |error: &Error| !is_no_matrix(error);
    assert!(!refused.iter().any(|refusal| other(&refusal.error)), "{refused:?}");
    let refused = conformance::reader(|tensor| {
        Ok(tensor.copy_as::<OMatrix<i16, Dyn, U1>>()?.iter().copied().collect::<Vec<_>>())
    });
    assert!(!refused.iter().any(|refusal| refusal.tensor == "reversed"), "{refused:?}");
}

#[test]
fn rows_between_those_of_a_view_stay_with_their_holder() {
    let mut matrix = DMatrix::from_fn(4, 3, |i, j| (i * 3 + j) as i32);
    let (mut ours, mut theirs) = matrix.rows_range_pair_mut(..2, 2..);
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || (0..100).for_each(|_| theirs.add_scalar_mut(1)));
        let mut tensor = TensorMut::from(&mut ours);
        assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[1, 4][..]));
        let view = tensor.view_as::<DMatrixView<i32>>().expect("exclusive");
        assert_eq!((view.iter().sum::<i32>(), view.column(1).sum()), (15, 5));
        let mut view = tensor.view_mut_as::<DMatrixViewMut<i32>>().expect("exclusive");
        view.column_mut(2).axpy(2, &Vector2::new(1, 1), 1);
        view.apply(|x| *x = -*x);
        writer.join().expect("no panic");
    });
    let wanted = [0, -1, -4, -3, -4, -7, 106, 107, 108, 109, 110, 111];
    assert_eq!(matrix, DMatrix::from_row_slice(4, 3, &wanted));
    // a row of a column-major matrix is no column
    let refused =
        TensorRef::from(&matrix.row(1)).view_as::<Transposed<DVectorView<i32>>>().map(|_| ());
    let wanted = Error::StrideMismatch {
        axis: 1,
        stride: 4,
        expected: "1 along a column (if row-major, use `Transposed`)",
    };
    assert_eq!(refused, Err(wanted));
}

#[test]
fn overlapping_columns_are_read_but_not_borrowed_mutably() {
    for stride in [0, 1] {
        let builder = Tensor::builder(SIX).shape([3, 4]).strides([1, stride]);
        let mut tensor = builder.build::<i32>().expect("it fits");
        let view = tensor.view_as::<DMatrixView<i32>>().expect("exclusive");
        assert_eq!(view, tensor.copy_as::<OMatrix<i32, Dyn, Dyn>>().expect("host"));
        assert_eq!(view.iter().copied().collect::<Vec<_>>().len(), 12);
        let refused = tensor.view_mut_as::<DMatrixViewMut<i32>>().map(|_| ());
        assert_eq!(refused, Err(Error::Overlapping));
        // SAFETY: nobody else has the elements.
        let refused = unsafe { tensor.assume_exclusive() }
            .and_then(|tensor| tensor.into_as::<DMatrixViewMut<i32>>())
            .map(|_| ());
        assert_eq!(refused, Err(Error::Overlapping));
    }
}

#[test]
fn a_column_may_have_one_axis_or_two() {
    for shape in [&[6][..], &[6, 1]] {
        let tensor = Tensor::builder(SIX).shape(shape).build::<i32>().expect("it fits");
        let column = tensor.view_as::<DVectorView<i32>>().expect("exclusive");
        assert_eq!((column.shape(), column.as_slice()), ((6, 1), &SIX[..]));
        assert_eq!(tensor.copy_as::<OMatrix<i32, Dyn, U1>>(), Ok(DVector::from_row_slice(&SIX)));
    }
    let every_second = Tensor::builder(SIX).shape([3]).strides([2]).build::<i32>();
    let refused = every_second.expect("it fits").view_as::<DVectorView<i32>>().map(|_| ());
    let wanted = Error::StrideMismatch {
        axis: 0,
        stride: 2,
        expected: "1 along a column (if row-major, use `Transposed`)",
    };
    assert_eq!(refused, Err(wanted.clone()));
    let said = "strides: axis 0: expected 1 along a column (if row-major, use `Transposed`), \
                found 2; use view(), or copy with to_contiguous()";
    assert_eq!(wanted.to_string(), said);
}

#[test]
fn each_class_allows_its_own_borrows() {
    for class in [Access::Shared, Access::Exclusive, Access::Frozen] {
        let foreign = Foreign::new(&[2, 3], &SIX).strides(&[1, 2]).class(class);
        let mut tensor = import(foreign).expect("legal");
        let access = tensor.access();
        let read = tensor.view_as::<MatrixView<i32, U2, U3, U1, Dyn>>().map(|_| ());
        let write = tensor.view_mut_as::<MatrixViewMut<i32, U2, U3, U1, Dyn>>().map(|_| ());
        let (can_read, can_write) = match access {
            Access::Exclusive => (Ok(()), Ok(())),
            Access::Frozen => (Ok(()), Err(Error::ReadOnly)),
            Access::Shared => (Err(Error::SharedMemory), Err(Error::SharedMemory)),
        };
        assert_eq!((read, write), (can_read, can_write), "{access}");
        let wanted = Matrix2x3::from_column_slice(&SIX);
        assert_eq!(tensor.copy_as::<OMatrix<i32, U2, U3>>(), Ok(wanted), "{access}");
        // SAFETY: nobody writes.
        let view = unsafe { tensor.assume_frozen() }.into_as::<MatrixView<i32, U2, U3, U1, Dyn>>();
        assert_eq!(view.expect("the class is not looked at"), wanted, "{access}");
        // SAFETY: nobody else has the elements.
        let view = unsafe { tensor.assume_exclusive() }
            .and_then(|tensor| tensor.into_as::<MatrixViewMut<i32, U2, U3, U1, Dyn>>());
        let refused = view.map(|_| ()).err();
        assert_eq!(refused, (access == Access::Frozen).then_some(Error::ReadOnly));
    }
}

#[test]
fn another_size_ndim_dtype_or_device_is_refused() {
    let tensor = Tensor::builder(SIX).shape([2, 3]).build::<i32>().expect("it fits");
    let refused = tensor.view_as::<MatrixView<i32, U3, Dyn, U1, Dyn>>().map(|_| ());
    assert_eq!(refused, Err(other_extent(0, 3, 2)));
    let refused = tensor.copy_as::<OMatrix<i32, Dyn, Const<2>>>().map(|_| ());
    assert_eq!(refused, Err(other_extent(1, 2, 3)));
    let refused = tensor.view_as::<DVectorView<i32>>().map(|_| ());
    assert_eq!(refused, Err(other_extent(1, 1, 3)));
    let refused = tensor.view_as::<DMatrixView<f32>>().map(|_| ());
    let wanted = Error::DTypeMismatch { found: DType::I32, expected: DType::F32 };
    assert_eq!(refused, Err(wanted));
    let refused = Tensor::from(SIX).view_as::<DMatrixView<i32>>().map(|_| ());
    assert_eq!(refused, Err(other_ndim(2, 1)));
    let refused = Tensor::scalar(1).view_as::<DVectorView<i32>>().map(|_| ());
    assert_eq!(refused, Err(other_ndim(1, 0)));
    let device = "cuda:0".parse().expect("a name");
    let tensor = import(Foreign::new(&[2, 3], &SIX).device(device).class(Access::Exclusive));
    let refused = tensor.expect("legal").view_as::<DMatrixView<i32>>().map(|_| ());
    assert_eq!(refused, Err(Error::NotHostAccessible { device }));
}

#[test]
fn a_matrix_given_away_is_released_once_on_another_thread() {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).shape([2, 3]).strides([1, 2]).build::<i32>();
    let tensor = tensor.expect("it fits");
    let tensor = std::thread::spawn(move || {
        assert_eq!(
            tensor.view_as::<MatrixView<i32, U2, U3, U1, Dyn>>().expect("exclusive").sum(),
            21
        );
        tensor
    });
    let tensor = tensor.join().expect("no panic");
    drops.expect(0, "before the drop");
    std::thread::spawn(move || drop(tensor)).join().expect("no panic");
    drops.expect(1, "after the drop");
    let matrix = DMatrix::from_row_slice(2, 3, &SIX);
    let tensor = take_back(Tensor::from(matrix.clone()).into_raw());
    assert_eq!(tensor.view_as::<DMatrixView<i32>>().map(|_| ()), Err(Error::SharedMemory));
    assert_eq!(tensor.copy_as::<OMatrix<i32, Dyn, Dyn>>(), Ok(matrix));
}
