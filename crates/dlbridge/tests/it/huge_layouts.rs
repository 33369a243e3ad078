//! Layouts with more elements or bytes than fit a word, as safe code makes them with the types of
//! each crate: what can be described is read right, what cannot is refused.
#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

#[allow(unused_imports, reason = "for the adapters")]
use dlbridge::TensorRef;
use dlbridge::{DType, DescriptorError, Error, Parts, Tensor};
use dlbridge_testing::conformance::repeated;

const ELEMENTS: Error = Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" });
const BYTES: Error = Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" });
const SPAN: Error = Error::Descriptor(DescriptorError::SizeOverflow { what: "strided span" });

/// Asserts that a conversion that cannot fail panics, saying why.
#[track_caller]
#[allow(dead_code, reason = "for the adapters")]
fn panics(wanted: &Error, convert: impl FnOnce() + std::panic::UnwindSafe) {
    let payload = catch_unwind(convert).expect_err("it cannot be described");
    let message = payload.downcast::<String>().expect("a formatted message");
    let wanted = format!("expected an array that a tensor can describe: {wanted}");
    assert_eq!(*message, wanted);
}

#[test]
fn a_builder_refuses_what_wraps() {
    let build = |shape: &[i64], strides: &[i64], dtype| {
        let builder = Tensor::builder(vec![0_u8; 64]).shape(shape).strides(strides).dtype(dtype);
        builder.build::<u8>().map(drop)
    };
    assert_eq!(build(&[1 << 32, 1 << 32], &[0, 0], DType::U8), Err(ELEMENTS));
    assert_eq!(build(&[(1 << 61) + 125, 8], &[0, 1], DType::U8), Err(ELEMENTS));
    assert_eq!(build(&[1 << 32, 0, 1 << 32], &[0, 0, 0], DType::U8), Err(ELEMENTS));
    assert_eq!(build(&[1 << 60], &[0], DType::F64), Err(BYTES));
    assert_eq!(build(&[3], &[i64::MAX], DType::U8), Err(SPAN));
    assert_eq!(build(&[2], &[i64::MIN], DType::U8), Err(SPAN));
    assert_eq!(build(&[1 << 62], &[0], DType::U8), Ok(()));
    for (bits, lanes) in [(0, 1), (8, 0), (0, 0), (0, u16::MAX)] {
        let dtype = DType { bits, lanes, ..DType::U8 };
        assert!(matches!(
            build(&[1], &[1], dtype),
            Err(Error::Descriptor(DescriptorError::ImpossibleDType { .. }))
        ));
    }
    let widest = DType { bits: 255, lanes: u16::MAX, ..DType::U8 };
    assert!(matches!(build(&[1], &[1], widest), Err(Error::OutOfBounds { .. })));
    assert_eq!(build(&[1 << 50], &[0], widest), Err(BYTES));
    assert_eq!(build(&[0, 1 << 50], &[0, 0], widest), Ok(()));
}

#[test]
fn a_builder_repeats_as_often_as_bytes_fit() {
    let tensor = Tensor::builder(vec![7.0_f64]).shape([1_i64 << 30, 1 << 29]).strides([0, 0]);
    let tensor = tensor.build::<f64>().expect("2^62 bytes");
    repeated(&tensor.as_tensor_ref(), &[1 << 30, 1 << 29], 7.0);
}

#[cfg(feature = "faer-0_24")]
mod faer_0_24 {
    use faer::{ColRef, Mat, MatRef, RowRef};

    use super::*;

    /// Array types were described without a size check: an element count that wraps gave safe code
    /// access to freed memory.
    #[test]
    fn a_repeated_column_is_no_window_to_other_memory() {
        let column = [1_u8; 8];
        let column = ColRef::from_slice(&column);
        let more = MatRef::from_repeated_col(column, (1 << 61) + 125);
        panics(&ELEMENTS, move || drop(TensorRef::from(&more)));
    }

    #[test]
    fn a_repeated_value_is_no_empty_matrix() {
        let x = 5_i64;
        let matrix = MatRef::from_repeated_ref(&x, 1 << 32, 1 << 32);
        panics(&ELEMENTS, move || drop(TensorRef::from(&matrix)));
        let bytes = MatRef::from_repeated_ref(&x, 1 << 31, 1 << 31);
        panics(&BYTES, move || drop(TensorRef::from(&bytes)));
        let long = ColRef::from_repeated_ref(&x, usize::MAX);
        panics(&ELEMENTS, move || drop(TensorRef::from(&long)));
        let long = RowRef::from_repeated_ref(&x, 1 << 60);
        panics(&BYTES, move || drop(TensorRef::from(&long)));
        let empty = MatRef::from_repeated_ref(&x, 0, usize::MAX);
        panics(&ELEMENTS, move || drop(TensorRef::from(&empty)));
    }

    #[test]
    fn an_owned_matrix_is_measured() {
        let empty = Mat::<f64>::with_capacity(0, 0);
        assert_eq!(Tensor::from(empty).shape(), [0, 0]);
    }
}

#[cfg(feature = "nalgebra-0_35")]
mod nalgebra_0_35 {
    use std::sync::Arc;

    use nalgebra::{DMatrix, DVectorView, Dyn};

    use super::*;

    fn view<T: nalgebra::Scalar>(
        values: &'static [T],
        (rows, columns): (usize, usize),
        (row, column): (usize, usize),
    ) -> nalgebra::MatrixView<'static, T, Dyn, Dyn, Dyn, Dyn> {
        nalgebra::MatrixView::from_slice_with_strides_generic(
            values,
            Dyn(rows),
            Dyn(columns),
            Dyn(row),
            Dyn(column),
        )
    }

    #[test]
    fn a_column_stride_of_0_is_no_window_to_other_memory() {
        let matrix = view(&[1_u8; 8], (8, (1 << 61) + 125), (1, 0));
        panics(&ELEMENTS, move || drop(TensorRef::from(&matrix)));
        panics(&ELEMENTS, move || drop(Tensor::from(Arc::new(matrix))));
        let matrix = view(&[5_i64], (1 << 32, 1 << 32), (0, 0));
        panics(&ELEMENTS, move || drop(TensorRef::from(&matrix)));
        let matrix = view(&[5_i64], (1 << 31, 1 << 31), (0, 0));
        panics(&BYTES, move || drop(TensorRef::from(&matrix)));
        let vector = DVectorView::from_slice_with_strides_generic(
            &[5_i64],
            Dyn(1 << 60),
            nalgebra::Const::<1>,
            Dyn(0),
            Dyn(0),
        );
        panics(&BYTES, move || drop(TensorRef::from(&vector)));
    }

    #[test]
    fn an_extent_that_fits_no_i64_is_refused() {
        let empty = || DMatrix::<f64>::from_vec(0, usize::MAX, vec![]);
        panics(&ELEMENTS, move || drop(Tensor::from(empty())));
        panics(&ELEMENTS, move || drop(Tensor::from(Arc::new(empty()))));
        panics(&ELEMENTS, move || drop(TensorRef::from(&empty())));
        let empty = DMatrix::<f64>::from_vec(0, 1 << 62, vec![]);
        let tensor = Tensor::from(empty);
        assert_eq!((tensor.shape(), tensor.len()), (&[0, 1 << 62][..], 0));
        assert_eq!(tensor.view::<f64>().expect("float64").to_vec(), [0.0; 0]);
    }
}

#[cfg(feature = "ndarray-0_17")]
mod ndarray_0_17 {
    use dlbridge::TensorMut;
    use ndarray::{ArrayD, arr0};

    use super::*;

    #[test]
    fn a_broadcast_of_more_bytes_than_fit_is_refused() {
        let one = arr0(5.0_f64);
        let view = one.broadcast(1_usize << 60).expect("as many as fit isize");
        panics(&BYTES, AssertUnwindSafe(|| drop(TensorRef::from(&view))));
        let borrow = || drop(TensorRef::from(&*view));
        panics(&BYTES, AssertUnwindSafe(borrow));
    }

    #[test]
    fn too_many_axes_are_refused() {
        let ndim = Error::Descriptor(DescriptorError::NdimOutOfRange { ndim: 65 });
        let array = || ArrayD::<u8>::zeros(vec![1; 65]);
        panics(&ndim, move || drop(Tensor::from(array())));
        panics(&ndim, move || drop(TensorRef::from(&array())));
        panics(&ndim, move || drop(TensorMut::from(&mut array())));
        assert_eq!(TensorRef::from(&ArrayD::<u8>::zeros(vec![1; 64])).ndim(), 64);
    }
}

#[cfg(feature = "candle-core-0_11")]
mod candle_core_0_11 {
    use candle_core::{Device, Tensor as Candle};

    use super::*;

    fn repeat(shape: (usize, usize)) -> Result<Tensor, Error> {
        let one = Candle::new(&[2.5_f64], &Device::Cpu).expect("one number");
        Tensor::try_from(one.broadcast_as(shape).expect("an axis of extent 1"))
    }

    #[test]
    fn broadcasts_are_measured() {
        let tensor = repeat((1 << 30, 1 << 29)).expect("2^62 bytes");
        repeated(&tensor.as_tensor_ref(), &[1 << 30, 1 << 29], 2.5);
        assert_eq!(repeat((1 << 31, 1 << 31)).map(drop), Err(BYTES));
        assert_eq!(repeat((1 << 32, 1 << 32)).map(drop), Err(ELEMENTS));
        assert_eq!(repeat((2, usize::MAX)).map(drop), Err(ELEMENTS));
    }
}

#[cfg(feature = "burn-flex-0_22")]
mod burn_flex_0_22 {
    use burn_flex::{FlexTensor, Layout};
    use burn_std::{Shape, TensorData};

    use super::*;

    fn repeat(shape: [usize; 2]) -> Result<Tensor, Error> {
        let one = FlexTensor::from_data(TensorData::new(vec![2.5_f64], [1]));
        Tensor::try_from(one.with_layout(Layout::new(Shape::from(shape), vec![0, 0], 0)))
    }

    #[test]
    fn broadcasts_are_measured() {
        let tensor = repeat([1 << 30, 1 << 29]).expect("2^62 bytes");
        repeated(&tensor.as_tensor_ref(), &[1 << 30, 1 << 29], 2.5);
        assert_eq!(repeat([1 << 31, 1 << 31]).map(drop), Err(BYTES));
        assert_eq!(repeat([1 << 32, 1 << 32]).map(drop), Err(ELEMENTS));
        assert_eq!(repeat([0, usize::MAX]).map(drop), Err(ELEMENTS));
    }
}

#[cfg(feature = "arrow-60")]
mod arrow_60 {
    use std::sync::Arc;

    use arrow_array::{Array, FixedSizeListArray, UInt8Array};
    use arrow_schema::{DataType, Field};

    use super::*;

    #[test]
    fn lists_of_nothing_are_measured() {
        let lists = |len| {
            let values: Arc<dyn Array> = Arc::new(UInt8Array::from(vec![0_u8; 0]));
            let item = Arc::new(Field::new("item", DataType::UInt8, false));
            FixedSizeListArray::try_new_with_length(item, 0, values, None, len).expect("empty")
        };
        let tensor = Tensor::try_from(lists(1 << 62)).expect("no elements");
        assert_eq!((tensor.shape(), tensor.len()), (&[1 << 62, 0][..], 0));
        assert_eq!(Tensor::try_from(lists(usize::MAX)).map(drop), Err(ELEMENTS));
    }
}

/// 2^40 indices of one element: the loop would take minutes.
#[test]
fn a_broadcast_axis_is_filled_once() {
    let repeated = Tensor::builder(vec![1_u8, 2, 3]).shape([2, 1_i64 << 40]).strides([2, 0]);
    let mut tensor = repeated.build::<u8>().expect("two elements");
    tensor.view_mut::<u8>().expect("exclusive").fill(7);
    assert_eq!(tensor.into_owner::<Vec<u8>>().expect("the vector"), [7, 2, 7]);
    let mut scalar =
        Tensor::builder([1_u8]).shape([1_i64 << 40]).strides([0]).build::<u8>().expect("one");
    scalar.view_mut::<u8>().expect("exclusive").fill(9);
    assert_eq!(scalar.view::<u8>().expect("host").get([1_i64 << 39]), Some(9));
    let mut empty = Tensor::builder([1_u8])
        .shape([1_i64 << 40, 0])
        .strides([0, 1])
        .build::<u8>()
        .expect("none");
    empty.view_mut::<u8>().expect("exclusive").fill(9);
    assert_eq!(empty.into_owner::<[u8; 1]>().expect("the array"), [1]);
}

/// A tensor of one value with more bytes than there are addresses, and of any shape.
fn repeated_value(shape: &[i64]) -> Tensor {
    Tensor::from([1.5_f64]).broadcast_to(shape).expect("fewer bytes than isize::MAX")
}

/// Copies of broadcasts that no memory holds ended the process: `copy_as` into `Vec`, ndarray,
/// nalgebra, image and faer, `View::map`, `View::to_vec`. A copy of `[0, 1 << 62]` into a faer
/// matrix never ended.
#[test]
fn copies_without_memory_are_errors() {
    let size = 1 << 58;
    let (line, matrix) = (repeated_value(&[1 << 55]), repeated_value(&[1 << 25, 1 << 30]));
    let too_large = Err(Error::OutOfMemory { size });
    assert_eq!(line.copy_as::<Vec<f64>>().map(drop), too_large);
    assert_eq!(matrix.as_tensor_ref().copy_as::<Vec<f64>>().map(drop), too_large);
    assert_eq!(line.to_contiguous().map(drop), too_large);
    #[cfg(feature = "ndarray-0_17")]
    {
        assert_eq!(matrix.copy_as::<ndarray::Array2<f64>>().map(drop), too_large);
        assert_eq!(line.copy_as::<ndarray::ArrayD<f64>>().map(drop), too_large);
    }
    #[cfg(feature = "nalgebra-0_35")]
    {
        use nalgebra::{DMatrix, DVector, Matrix3xX};
        assert_eq!(matrix.copy_as::<DMatrix<f64>>().map(drop), too_large);
        assert_eq!(line.copy_as::<DVector<f64>>().map(drop), too_large);
        let rows = repeated_value(&[3, 1 << 55]).copy_as::<Matrix3xX<f64>>();
        assert_eq!(rows.map(drop), Err(Error::OutOfMemory { size: 3 * size }));
    }
    #[cfg(feature = "faer-0_24")]
    {
        assert_eq!(matrix.copy_as::<faer::Mat<f64>>().map(drop), too_large);
        assert_eq!(line.copy_as::<faer::Col<f64>>().map(drop), too_large);
    }
    #[cfg(feature = "image-0_25")]
    {
        let picture = Tensor::from([7_u8]).broadcast_to([(1_i64 << 32) - 1, (1 << 28) - 1, 3]);
        let copy = picture.expect("described").copy_as::<image::RgbImage>();
        assert!(matches!(copy.map(drop), Err(Error::OutOfMemory { .. })));
    }
}

#[test]
fn vectors_without_memory_are_panics_that_name_their_size() {
    let tensor = repeated_value(&[1 << 55]);
    let view = tensor.view::<f64>().expect("float64");
    let part = view.flip(0).expect("one axis");
    let copies: [&dyn Fn(); 3] =
        [&|| drop(view.to_vec()), &|| drop(view.map(|x| x)), &|| drop(part.to_vec())];
    for copy in copies {
        let payload = catch_unwind(AssertUnwindSafe(copy)).expect_err("too large");
        let message = payload.downcast::<String>().expect("a formatted message");
        assert!(message.contains("cannot allocate 288230376151711744 bytes"), "{message}");
    }
    // Values without a size take no memory.
    assert_eq!(Tensor::from([1, 2]).view::<i32>().expect("int32").map(drop).len(), 2);
}

#[cfg(any(feature = "faer-0_24", feature = "nalgebra-0_35", feature = "ndarray-0_17"))]
#[test]
fn copies_of_nothing_end_at_once_whatever_the_extents() {
    let shapes = [[0, 1_i64 << 62], [1 << 55, 0], [0, 0]];
    for shape in shapes {
        let tensor = Tensor::zeros(DType::F64, shape).expect("no elements");
        let _expected = (shape[0] as usize, shape[1] as usize);
        #[cfg(feature = "faer-0_24")]
        {
            let copy = tensor.copy_as::<faer::Mat<f64>>().expect("no elements");
            assert_eq!((copy.nrows(), copy.ncols()), _expected);
        }
        #[cfg(feature = "nalgebra-0_35")]
        {
            let copy = tensor.copy_as::<nalgebra::DMatrix<f64>>().expect("no elements");
            assert_eq!(copy.shape(), _expected);
        }
        #[cfg(feature = "ndarray-0_17")]
        {
            let copy = tensor.copy_as::<ndarray::Array2<f64>>().expect("no elements");
            assert_eq!(copy.dim(), _expected);
        }
        drop(tensor);
    }
}

#[test]
#[should_panic(expected = "expected an array that a tensor can describe: shape")]
fn more_rows_without_elements_than_an_extent_holds_are_refused_with_a_reason() {
    let rows: Vec<[u8; 0]> = vec![[]; usize::MAX];
    drop(Tensor::from(rows));
}
