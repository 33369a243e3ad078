//! From tensors to `ndarray`, for each of its versions (`super::ndarray`): views of every class and layout, and copies.
//! Arrays to tensors are in `ndarray_0_17.rs`.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use super::ndarray::{
    Array, Array2, ArrayD, ArrayView, ArrayViewMut, Ix0, Ix1, Ix2, Ix3, IxDyn, array, s,
};
use crate::common::{import, other_rank};
use dlbridge::{Access, DType, Error, ReadCell, Tensor, TensorMut, TensorRef};
use dlbridge_testing::{Foreign, conformance};

const SIX: [i32; 6] = [1, 2, 3, 4, 5, 6];

fn six(strides: &[i64], at: usize) -> Tensor {
    let builder = Tensor::builder(SIX).shape(&[2, 3]).strides(strides).offset(at);
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
fn another_rank_is_refused() {
    let mut tensor = six(&[3, 1], 0);
    let wanted = other_rank(1, 2);
    assert_eq!(tensor.view_as::<ArrayView<i32, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.view_mut_as::<ArrayViewMut<i32, Ix1>>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.copy_as::<Array<i32, Ix1>>(), Err(wanted.clone()));
    assert_eq!(tensor.view_as::<ArrayView<ReadCell<i32>, Ix1>>().map(drop), Err(wanted.clone()));
    let view = tensor.view::<i32>().expect("i32");
    assert_eq!(ArrayView::<ReadCell<i32>, Ix1>::try_from(view).map(drop), Err(wanted.clone()));
    assert_eq!(view.copy_as::<Array<i32, Ix1>>(), Err(wanted));
    let wanted = other_rank(3, 2);
    assert_eq!(ArrayView::<i32, Ix3>::try_from(&tensor).map(drop), Err(wanted.clone()));
    assert_eq!(Array::<i32, Ix3>::try_from(&tensor), Err(wanted));
    assert_eq!(tensor.view_as::<ArrayView<i32, IxDyn>>().expect("any rank").ndim(), 2);
    assert_eq!(
        Tensor::scalar(1).view_as::<ArrayView<i32, Ix0>>().expect("rank 0").into_scalar(),
        &1
    );
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
