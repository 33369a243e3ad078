//! From `ndarray` to tensors, for each of its versions (`super::ndarray`): owned, shared and borrowed arrays of every layout.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use std::sync::Arc;

use dlbridge::{Access, DType, Error, ReadCell, Tensor, TensorMut, TensorRef};
use dlbridge_testing::Foreign;
use dlbridge_testing::conformance::{self, Expected};

use super::ndarray::{
    ArcArray, Array, Array0, Array1, Array2, ArrayBase, ArrayD, ArrayView, ArrayViewMut, Axis,
    CowArray, Data, Dimension, Ix0, Ix1, Ix2, Ix3, IxDyn, ShapeBuilder, Slice, arr0, array, by_mut,
    by_ref, s,
};
use crate::common::{import, indices, other_ndim, take_back};

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
fn arrays_of_every_ndim_conform() {
    conforms(|| arr0(7));
    conforms(|| counted(3));
    conforms(|| counted((2, 3)));
    conforms(|| counted((2, 3, 2)));
    conforms(|| counted((2, 3, 1, 2)));
    conforms(|| counted((2, 1, 3, 1, 2)));
    conforms(|| counted((2, 1, 3, 1, 2, 1)));
}

#[test]
fn arrays_of_dynamic_ndim_conform() {
    for ndim in 0..=12 {
        let shape: Vec<usize> = (0..ndim).map(|axis| 1 + axis % 2).collect();
        conforms(|| counted(IxDyn(&shape)));
    }
    conforms(|| counted(IxDyn(&[1; 64])));
}

#[test]
#[should_panic(expected = "ndim: expected 0 to 64, found 65")]
fn an_array_of_ndim_65_is_no_tensor() {
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
fn an_array_of_another_ndim_is_not_the_owner() {
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
    assert_eq!(tensor.view::<f64>().expect("f64").get([len - 1]), Some(5.0));
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

// From tensors to `ndarray`, for each of its versions (`super::ndarray`): views of every class and layout, and copies.

const SIX: [i32; 6] = [1, 2, 3, 4, 5, 6];

fn six(strides: &[i64], at: usize) -> Tensor {
    let builder = Tensor::builder(SIX).shape([2, 3]).strides(strides).offset(at);
    builder.build::<i32>().expect("it fits")
}

fn foreign(class: Access) -> Tensor {
    import(Foreign::new(&[2, 3], &SIX).class(class)).expect("legal")
}

#[test]
fn copies_take_every_layout() {
    let refused = conformance::reader(|tensor| {
        Ok(tensor.copy_as::<Array<f32, IxDyn>>()?.into_iter().collect::<Vec<_>>())
    });
    assert_eq!(refused, []);
    assert_eq!(conformance::reader(|tensor| ArrayD::<bool>::try_from(tensor)), []);
}

#[test]
fn views_take_every_layout_that_others_do_not_write() {
    let refused = conformance::reader(|tensor| {
        let view = tensor.view_as::<ArrayView<f64, IxDyn>>()?;
        Ok(view.iter().copied().collect::<Vec<_>>())
    });
    for refusal in &refused {
        match refusal.tensor {
            "contiguous, shared" => assert_eq!(refusal.error, Error::SharedMemory),
            "odd address" => assert!(matches!(refusal.error, Error::Misaligned { .. })),
            other => panic!("{other}: {}", refusal.error),
        }
    }
    assert_eq!(refused.len(), 2);
}

#[test]
fn arrays_of_cells_take_every_class() {
    let refused = conformance::reader(|tensor| {
        let cells = tensor.view_as::<ArrayView<ReadCell<f64>, IxDyn>>()?;
        Ok(cells.iter().map(ReadCell::get).collect::<Vec<_>>())
    });
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    assert_eq!(names, ["odd address"]);
}

#[test]
fn copies_of_every_layout_are_borrowed_mutably() {
    let refused = conformance::reader(|tensor| {
        let mut copy = tensor.to_contiguous()?;
        let mut view = copy.view_mut_as::<ArrayViewMut<i64, IxDyn>>()?;
        view.map_inplace(|x| *x ^= 0);
        Ok(view.iter().copied().collect::<Vec<_>>())
    });
    assert_eq!(refused, []);
}

#[test]
fn each_class_allows_its_own_borrows() {
    let wanted = array![[1, 2, 3], [4, 5, 6]];
    for class in [Access::Shared, Access::Exclusive, Access::Frozen] {
        let mut tensor = foreign(class);
        let access = tensor.access();
        let read = tensor.view_as::<ArrayView<i32, Ix2>>().map(|view| view.to_owned());
        let write = tensor.view_mut_as::<ArrayViewMut<i32, Ix2>>().map(|view| view.to_owned());
        let (can_read, can_write) = match access {
            Access::Exclusive => (Ok(wanted.clone()), Ok(wanted.clone())),
            Access::Frozen => (Ok(wanted.clone()), Err(Error::ReadOnly)),
            Access::Shared => (Err(Error::SharedMemory), Err(Error::SharedMemory)),
        };
        assert_eq!((read, write), (can_read, can_write), "{access}");
        assert_eq!(tensor.copy_as::<Array<i32, Ix2>>(), Ok(wanted.clone()), "{access}");
        // SAFETY: nobody writes.
        let view = unsafe { tensor.assume_frozen() }.into_as::<ArrayView<i32, Ix2>>();
        assert_eq!(view.expect("the class is not looked at"), wanted, "{access}");
        // SAFETY: nobody else has the elements.
        let view = unsafe { tensor.assume_exclusive() }
            .and_then(|tensor| tensor.into_as::<ArrayViewMut<i32, Ix2>>());
        let refused = view.map(drop).err();
        assert_eq!(refused, (access == Access::Frozen).then_some(Error::ReadOnly));
    }
}

#[test]
fn a_view_is_the_tensors_own_memory() {
    for (strides, at) in [([3, 1], 0), ([1, 2], 0), ([-3, -1], 5), ([-1, 2], 1), ([3, -1], 2)] {
        let mut tensor = six(&strides, at);
        let wanted = tensor.copy_as::<Array<i32, Ix2>>().expect("host");
        let data = tensor.data_ptr().cast::<i32>();
        let view = tensor.view_as::<ArrayView<i32, Ix2>>().expect("exclusive");
        assert_eq!(view, wanted, "{strides:?}");
        assert_eq!(view.as_ptr(), data.cast_const(), "{strides:?}: element [0, 0]");
        let found: Vec<i64> = view.strides().iter().map(|&stride| stride as i64).collect();
        assert_eq!(found, strides);
        let mut view = tensor.view_mut_as::<ArrayViewMut<i32, Ix2>>().expect("exclusive");
        view[[1, 2]] = 60;
        view.row_mut(0).fill(0);
        let again = tensor.copy_as::<Array<i32, Ix2>>().expect("host");
        assert_eq!(again, array![[0, 0, 0], [wanted[[1, 0]], wanted[[1, 1]], 60]], "{strides:?}");
    }
}

#[test]
fn another_ndim_is_refused() {
    let mut tensor = six(&[3, 1], 0);
    let wanted = other_ndim(1, 2);
    assert_eq!(tensor.view_as::<ArrayView<i32, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.view_mut_as::<ArrayViewMut<i32, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Array<i32, Ix1>>(), Err(wanted.clone()));
    assert_eq!(tensor.view_as::<ArrayView<ReadCell<i32>, Ix1>>().map(drop), Err(wanted.clone()));
    let view = tensor.view::<i32>().expect("i32");
    assert_eq!(ArrayView::<ReadCell<i32>, Ix1>::try_from(view).map(drop), Err(wanted.clone()));
    assert_eq!(view.copy_as::<Array<i32, Ix1>>(), Err(wanted));
    let wanted = other_ndim(3, 2);
    assert_eq!(ArrayView::<i32, Ix3>::try_from(&tensor).map(drop), Err(wanted.clone()));
    assert_eq!(Array::<i32, Ix3>::try_from(&tensor), Err(wanted));
    assert_eq!(tensor.view_as::<ArrayView<i32, IxDyn>>().expect("any number of axes").ndim(), 2);
    assert_eq!(Tensor::scalar(1).view_as::<ArrayView<i32, Ix0>>().expect("0-d").into_scalar(), &1);
}

#[test]
fn another_dtype_and_device_memory_are_refused() {
    let tensor = six(&[3, 1], 0);
    let wanted = Error::DTypeMismatch { found: DType::I32, expected: DType::F32 };
    assert_eq!(tensor.view_as::<ArrayView<f32, Ix2>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Array<f32, Ix2>>(), Err(wanted));
    let device = "cuda:0".parse().expect("a name");
    let foreign = Foreign::new(&[2], &[1, 2]).device(device).class(Access::Exclusive);
    let tensor = import(foreign).expect("legal");
    let wanted = Error::NotHostAccessible { device };
    assert_eq!(tensor.view_as::<ArrayView<i32, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Array<i32, Ix1>>(), Err(wanted));
}

#[test]
fn overlapping_elements_are_read_but_not_borrowed_mutably() {
    for (strides, at) in [([0, 1], 0), ([1, 1], 0), ([1, 0], 0), ([-1, 1], 1), ([2, 1], 0)] {
        let mut tensor = six(&strides, at);
        let wanted = tensor.copy_as::<Array<i32, Ix2>>().expect("host");
        assert_eq!(
            tensor.view_as::<ArrayView<i32, Ix2>>().expect("exclusive"),
            wanted,
            "{strides:?}"
        );
        let refused = tensor.view_mut_as::<ArrayViewMut<i32, Ix2>>().map(drop);
        assert_eq!(refused, Err(Error::Overlapping), "{strides:?}");
        // SAFETY: nobody else has the elements.
        let refused = unsafe { tensor.assume_exclusive() }
            .and_then(|tensor| tensor.into_as::<ArrayViewMut<i32, Ix2>>())
            .map(drop);
        assert_eq!(refused, Err(Error::Overlapping), "{strides:?}");
    }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn odd_strides_that_no_element_uses_are_no_obstacle() {
    let make = |shape: &[i64], strides: &[i64]| {
        let foreign = Foreign::new(shape, &SIX).strides(strides).class(Access::Exclusive);
        import(foreign).expect("legal")
    };
    let mut tensor = make(&[1, 3, 1], &[i64::MIN, 1, i64::MAX]);
    assert_eq!(
        tensor.view_as::<ArrayView<i32, Ix3>>().expect("exclusive"),
        array![[[1], [2], [3]]]
    );
    tensor.view_mut_as::<ArrayViewMut<i32, Ix3>>().expect("exclusive")[[0, 1, 0]] = 0;
    let mut tensor = make(&[i64::MAX, 0], &[i64::MIN, i64::MIN]);
    let view = tensor.view_as::<ArrayView<i32, Ix2>>().expect("empty");
    assert_eq!(view.shape(), [i64::MAX as usize, 0]);
    assert!(tensor.view_mut_as::<ArrayViewMut<i32, Ix2>>().expect("empty").is_empty());
    assert_eq!(tensor.copy_as::<Array<i32, Ix2>>().expect("empty").len(), 0);
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn a_misaligned_tensor_is_copied_not_viewed() {
    let foreign = Foreign::of_bytes(DType::F64, &[1], &[0; 9]).data_at(1).class(Access::Exclusive);
    let mut tensor = import(foreign).expect("legal");
    let wanted = Error::Misaligned { address: tensor.data_ptr().addr(), align: 8 };
    assert_eq!(tensor.view_as::<ArrayView<f64, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.view_mut_as::<ArrayViewMut<f64, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.view_as::<ArrayView<ReadCell<f64>, Ix1>>().map(drop), Err(wanted));
    assert_eq!(tensor.copy_as::<Array<f64, Ix1>>(), Ok(array![0.0]));
}

#[test]
fn every_second_column_leaves_the_others_to_their_holder() {
    let mut matrix: Array2<i32> = Array::from_shape_fn((3, 6), |(i, j)| (i * 6 + j) as i32);
    let (mut ours, mut theirs) = matrix.multi_slice_mut((s![.., ..;2], s![.., 1..;2]));
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            for _ in 0..1000 {
                theirs += 1;
            }
        });
        let before = ours.to_owned();
        let tensor = TensorRef::from(&ours);
        for _ in 0..100 {
            let view = tensor.view_as::<ArrayView<i32, Ix2>>().expect("frozen");
            assert_eq!(view, before);
            assert_eq!(tensor.copy_as::<Array<i32, Ix2>>(), Ok(before.clone()));
            let copy = tensor.to_contiguous().expect("host");
            assert_eq!(copy.view_as::<ArrayView<i32, Ix2>>().expect("exclusive"), before);
            assert!(tensor.as_slice::<i32>().is_err(), "a slice would cover the gaps");
        }
        let mut tensor = TensorMut::from(&mut ours);
        assert!(tensor.as_slice_mut::<i32>().is_err(), "a slice would cover the gaps");
        tensor.view_mut::<i32>().expect("exclusive").map_inplace(|x| -x);
        tensor
            .view_mut_as::<ArrayViewMut<i32, Ix2>>()
            .expect("exclusive")
            .map_inplace(|x| *x *= 10);
        writer.join().expect("no panic");
    });
    let wanted = Array::from_shape_fn((3, 6), |(i, j)| {
        let value = (i * 6 + j) as i32;
        if j % 2 == 0 { -10 * value } else { value + 1000 }
    });
    assert_eq!(matrix, wanted);
}

#[test]
fn a_view_made_of_a_tensor_may_be_exported_again() {
    let tensor = six(&[1, 2], 0);
    let view = tensor.view_as::<ArrayView<i32, Ix2>>().expect("exclusive");
    let again = TensorRef::from(&view);
    assert_eq!((again.shape(), again.strides()), (tensor.shape(), tensor.strides()));
    assert_eq!(again.data_ptr(), tensor.data_ptr());
    assert_eq!(again.view_as::<ArrayView<i32, Ix2>>().expect("frozen"), view);
}
