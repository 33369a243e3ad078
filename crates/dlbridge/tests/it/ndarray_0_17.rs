//! From `ndarray` to tensors, for each of its versions (`super::ndarray`): owned, shared and borrowed arrays of every layout.
//! Tensors to arrays are in `ndarray_0_17_views.rs`.

use std::sync::Arc;

use super::ndarray::{
    ArcArray, Array, Array0, Array1, Array2, ArrayBase, ArrayD, ArrayView, ArrayViewMut, Axis,
    CowArray, Data, Dimension, Ix0, Ix1, Ix2, IxDyn, ShapeBuilder, Slice, arr0, array, by_mut,
    by_ref, s,
};
use crate::common::{indices, take_back};
use dlbridge::{Access, DType, Error, ReadCell, Tensor, TensorMut, TensorRef};
use dlbridge_testing::conformance::{self, Expected};

/// What an array has to look like as a tensor: its own pointer, shape, strides and values.
fn looks<S: Data<Elem = i32>, D: Dimension>(array: &ArrayBase<S, D>) -> Expected<i32> {
    let shape: Vec<i64> = array.shape().iter().map(|&extent| extent as i64).collect();
    let strides: Vec<i64> = array.strides().iter().map(|&stride| stride as i64).collect();
    let values: Vec<i32> = array.iter().copied().collect();
    Expected::new(&shape, &values).strides(&strides).at(array.as_ptr())
}

/// All conversions of one array, made as often as need be.
#[track_caller]
fn conforms<D: Dimension + 'static>(make: impl Fn() -> Array<i32, D>) {
    conformance::owner(|| {
        let array = make();
        let expected = looks(&array);
        (Tensor::from(array), expected)
    });
    conformance::owner(|| {
        let array = make().into_shared();
        let expected = looks(&array).read_only();
        (Tensor::from(array), expected)
    });
    conformance::owner(|| {
        let array = Arc::new(make());
        let expected = looks(&array).read_only();
        (Tensor::from(array), expected)
    });
    let mut array = make();
    let expected = looks(&array);
    conformance::borrowed(&TensorRef::from(&array), &expected);
    conformance::borrowed(&TensorRef::from(&array.view()), &expected);
    conformance::borrowed(&TensorRef::from(&array.view_mut()), &expected);
    conformance::borrowed(&TensorRef::from(&CowArray::from(array.view())), &expected);
    conformance::borrowed(&TensorRef::from(by_ref(&array)), &expected);
    written_through(&mut array);
}

#[track_caller]
fn written_through<D: Dimension>(array: &mut Array<i32, D>) {
    let (data, before) = (array.as_ptr(), array.clone());
    let mut tensor = TensorMut::from(&mut *array);
    assert_eq!(tensor.data_ptr().addr(), data.addr());
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Exclusive, false));
    tensor.view_mut::<i32>().expect("exclusive").map_inplace(|x| x + 1000);
    assert_eq!(*array, &before + 1000);
    let mut tensor = TensorMut::from(by_mut(array));
    tensor
        .view_mut_as::<ArrayViewMut<i32, D>>()
        .expect("an array does not overlap")
        .map_inplace(|x| *x -= 1000);
    assert_eq!(*array, before);
}

fn counted<D: Dimension>(shape: impl ShapeBuilder<Dim = D>) -> Array<i32, D> {
    let mut next = 0;
    Array::from_shape_simple_fn(shape, || {
        next += 1;
        next
    })
}

#[test]
fn arrays_of_every_rank_conform() {
    conforms(|| arr0(7));
    conforms(|| counted(3));
    conforms(|| counted((2, 3)));
    conforms(|| counted((2, 3, 2)));
    conforms(|| counted((2, 3, 1, 2)));
    conforms(|| counted((2, 1, 3, 1, 2)));
    conforms(|| counted((2, 1, 3, 1, 2, 1)));
}

#[test]
fn arrays_of_dynamic_rank_conform() {
    for rank in 0..=12 {
        let shape: Vec<usize> = (0..rank).map(|axis| 1 + axis % 2).collect();
        conforms(|| counted(IxDyn(&shape)));
    }
    conforms(|| counted(IxDyn(&[1; 64])));
}

#[test]
#[should_panic(expected = "ndim: expected 0 to 64, found 65")]
fn an_array_of_rank_65_is_no_tensor() {
    let _ = Tensor::from(ArrayD::<u8>::zeros(IxDyn(&[1; 65])));
}

#[test]
fn column_major_arrays_conform() {
    conforms(|| counted((2, 3).f()));
    conforms(|| counted((2, 3, 4).f()));
    conforms(|| counted((2, 3, 4)).reversed_axes());
    conforms(|| counted((2, 3, 4)).permuted_axes([1, 2, 0]));
}

#[test]
fn arrays_that_run_backwards_conform() {
    conforms(|| {
        let mut array = counted((3, 4));
        array.invert_axis(Axis(0));
        array
    });
    conforms(|| {
        let mut array = counted((3, 4).f());
        array.invert_axis(Axis(0));
        array.invert_axis(Axis(1));
        array
    });
    conforms(|| counted(5).slice_move(s![..;-1]));
    conforms(|| counted((4, 5)).slice_move(s![..;-2, 1..;-3]));
}

#[test]
fn arrays_with_gaps_conform() {
    conforms(|| counted((4, 6)).slice_move(s![1..3, ..;2]));
    conforms(|| counted((4, 6)).slice_move(s![.., 2]));
    conforms(|| {
        let mut array = counted((4, 6));
        array.slice_collapse(s![1..;2, 1..5]);
        array
    });
    conforms(|| {
        let mut array = counted((4, 6)).into_dyn();
        array.slice_axis_inplace(Axis(1), Slice::new(1, Some(6), 4));
        array
    });
}

#[test]
fn arrays_without_elements_conform() {
    conforms(|| counted(0));
    conforms(|| counted((0, 3)));
    conforms(|| counted((3, 0).f()));
    conforms(|| counted((3, 4)).slice_move(s![1..1, ..;-1]));
}

#[test]
fn an_array_comes_back_out_as_it_was() {
    let array = counted((4, 6)).slice_move(s![..;-1, ..;2]);
    let (data, copy) = (array.as_ptr(), array.clone());
    let mut tensor = Tensor::from(array);
    tensor.view_mut::<i32>().expect("exclusive").map_inplace(|x| x * 2);
    let again: Array2<i32> = tensor.into_owner().expect("it is the owner");
    assert_eq!(again.as_ptr(), data);
    assert_eq!(again, &copy * 2);
}

#[test]
fn an_array_of_another_rank_is_not_the_owner() {
    let tensor = Tensor::from(array![[1, 2]]);
    let tensor = tensor.into_owner::<Array1<i32>>().expect_err("it has two axes");
    let tensor = tensor.into_owner::<ArrayD<i32>>().expect_err("it has two static axes");
    assert!(tensor.into_owner::<Array2<i32>>().is_ok());
}

#[test]
fn a_shared_array_is_not_written_through_a_tensor() {
    let mut array: ArcArray<i32, _> = counted((2, 2)).into_shared();
    let tensor = Tensor::from(array.clone());
    array[[0, 0]] = 99; // ndarray copies first, since the tensor holds the same memory
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2, 3, 4][..]));
    assert_ne!(tensor.data_ptr().addr(), array.as_ptr().addr());
}

#[test]
fn borrowing_a_shared_array_mutably_makes_it_unique_first() {
    let kept: ArcArray<i32, _> = counted((4, 4)).into_shared();
    // a small part of it, whose strides change when it is copied
    let mut part = kept.clone();
    part.slice_collapse(s![..;3, ..;3]);
    let mut tensor = TensorMut::from(&mut part);
    assert_eq!(tensor.view::<i32>().expect("i32").to_vec(), [1, 4, 13, 16]);
    tensor.view_mut::<i32>().expect("exclusive").fill(-1);
    assert_eq!(part, array![[-1, -1], [-1, -1]]);
    assert!(kept.iter().eq((1..=16).collect::<Vec<_>>().iter()), "the other holder sees nothing");
}

#[test]
fn a_borrow_of_a_copy_on_write_array_copies_before_it_is_written() {
    let original = counted((2, 2));
    let mut cow = CowArray::from(original.view());
    TensorMut::from(&mut cow).view_mut::<i32>().expect("exclusive").fill(0);
    assert_eq!((cow.sum(), original.sum()), (0, 10));
}

#[test]
fn a_broadcast_array_is_borrowed_as_it_is() {
    let row = array![1, 2, 3];
    let view = row.broadcast((1000, 3)).expect("it broadcasts");
    let tensor = TensorRef::from(&view);
    assert_eq!((tensor.shape(), tensor.strides()), (&[1000, 3][..], &[0, 1][..]));
    assert_eq!(tensor.view_as::<ArrayView<i32, Ix2>>().expect("frozen"), view);
    assert_eq!(tensor.to_contiguous().expect("host").nbytes(), 12_000);
}

#[test]
fn a_broadcast_too_large_to_copy_is_viewed_all_the_same() {
    let one = arr0(5.0_f64);
    let len = isize::MAX as usize / 16 + 1;
    let view = one.broadcast(len).expect("as many as fit isize");
    let tensor = TensorRef::from(&view);
    assert_eq!((tensor.len(), tensor.nbytes()), (len, 8 * len));
    assert_eq!(tensor.view::<f64>().expect("f64").get(&[len - 1]), Some(5.0));
    if cfg!(target_pointer_width = "64") {
        let error = Error::OutOfMemory { size: 8 * len };
        assert_eq!(tensor.to_contiguous().map(drop), Err(error));
    }
    assert!(format!("{tensor:?}").contains("float64"));
    tensor.with_raw(|descriptor| assert!(!descriptor.is_null()));
}

#[test]
fn an_array_of_truth_values_conforms() {
    conformance::owner(|| {
        let array = array![[true, false], [false, true]];
        let expected = Expected::new(&[2, 2], &[true, false, false, true]).at(array.as_ptr());
        (Tensor::from(array), expected)
    });
    let tensor = Tensor::from(array![true, false]);
    assert_eq!(tensor.dtype(), DType::BOOL);
    assert_eq!(tensor.copy_as::<Array<bool, Ix1>>(), Ok(array![true, false]));
}

#[test]
fn an_exported_array_comes_back_as_an_array_of_cells() {
    let array: Array0<i32> = arr0(3);
    let tensor = take_back(Tensor::from(array).into_raw());
    assert_eq!(tensor.copy_as::<Array<i32, Ix0>>(), Ok(arr0(3)));
    let array = counted((3, 4).f());
    let copy = array.clone();
    let tensor = take_back(Tensor::from(array).into_raw());
    let cells = tensor.view_as::<ArrayView<ReadCell<i32>, Ix2>>().expect("aligned");
    for index in indices(&[3, 4]) {
        assert_eq!(cells[[index[0], index[1]]].get(), copy[[index[0], index[1]]]);
    }
}
