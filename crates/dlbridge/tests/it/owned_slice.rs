//! Slices that own the tensor they were made of.
//! Slices that borrow from a tensor are in `access.rs` and `strides.rs`.

use std::sync::Arc;
use std::thread;

use crate::common::{import, take_back};
use dlbridge::{Access, DType, Error, Tensor, TensorMut, TensorSlice, TensorSliceMut};
use dlbridge_testing::{CountingOwner, Foreign};
use parking_lot::RwLock;

#[test]
fn a_slice_is_the_tensors_own_memory_wherever_it_is_moved() {
    let tensor = Tensor::from([1_i32, 2, 3]); // which lie in the tensor's own allocation
    let data = tensor.data_ptr().cast::<i32>().cast_const();
    let slice = Box::new(tensor.into_slice::<i32>().expect("exclusive"));
    assert_eq!((slice.as_ptr(), &slice[..]), (data, &[1, 2, 3][..]));
    let mut slice = Box::new((*slice).into_tensor().into_slice_mut::<i32>().expect("exclusive"));
    slice.swap(0, 2);
    let tensor = (*slice).into_tensor();
    assert_eq!(
        (tensor.as_slice::<i32>(), tensor.access()),
        (Ok(&[3, 2, 1][..]), Access::Exclusive)
    );
    assert_eq!(tensor.into_owner::<[i32; 3]>().expect("it is the owner"), [3, 2, 1]);
}

#[test]
fn an_owner_is_dropped_once_on_another_thread() {
    let owner = CountingOwner::new([1_i32, 2, 3]);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<i32>().expect("it fits");
    let mut slice = tensor.into_slice_mut::<i32>().expect("exclusive");
    let slice = thread::spawn(move || {
        slice.as_mut()[0] = 10;
        slice
    });
    let slice = slice.join().expect("no panic").into_tensor().into_slice::<i32>();
    let slice = slice.expect("exclusive");
    drops.expect(0, "before the drop");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(slice.as_ref(), [10, 2, 3]));
        }
    });
    thread::spawn(move || drop(slice)).join().expect("no panic");
    drops.expect(1, "after the drop");
}

#[test]
fn a_refused_tensor_is_released() {
    let refused = |class, strides: &[i64]| {
        let foreign = Foreign::new(&[3], &[1_i32, 2, 3, 4, 5, 6]).class(class).strides(strides);
        let releases = foreign.releases();
        let tensor = import(foreign).expect("legal");
        let slice = tensor.into_slice_mut::<i32>().map(|_| ());
        releases.expect(1, "after it was refused");
        slice
    };
    assert_eq!(refused(Access::Shared, &[1]), Err(Error::SharedMemory));
    assert_eq!(refused(Access::Frozen, &[1]), Err(Error::ReadOnly));
    let wanted = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
    assert_eq!(refused(Access::Exclusive, &[2]), Err(wanted));
    let wanted = Error::DTypeMismatch { found: DType::U8, expected: DType::I8 };
    assert_eq!(Tensor::from([1_u8]).into_slice::<i8>().map(|_| ()), Err(wanted));
    let shared = Tensor::from(Tensor::from([1_u8]).into_shared());
    assert_eq!(shared.into_slice::<u8>().map(|_| ()), Err(Error::SharedMemory));
}

#[test]
fn a_slice_may_be_exported_again() {
    let owner = CountingOwner::new([1_i32, 2, 3, 4]);
    let drops = owner.drops();
    let slice: TensorSliceMut<i32> =
        Tensor::builder(owner).build::<i32>().and_then(Tensor::into_slice_mut).expect("exclusive");
    let tensor = Tensor::builder(slice).shape([2, 2]).build::<i32>().expect("it fits");
    let slice: TensorSlice<i32> = tensor.into_slice().expect("exclusive");
    let tensor = Tensor::builder(slice).shape([4]).build_read_only::<i32>().expect("it fits");
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2, 3, 4][..]));
    assert_eq!(tensor.access(), Access::Frozen);
    drop(tensor);
    drops.expect(1, "after the last of three tensors");
}

#[test]
fn bytes_are_those_of_the_elements_at_any_address() {
    let numbers = [1_u32, 2].map(u32::to_ne_bytes).concat();
    let bytes = [&[0][..], &numbers].concat();
    let foreign = Foreign::of_bytes(DType::U32, &[2], &bytes).data_at(1).class(Access::Exclusive);
    let tensor = import(foreign).expect("legal");
    assert!(matches!(tensor.as_slice::<u32>(), Err(Error::Misaligned { .. })));
    assert_eq!(tensor.as_bytes(), Ok(&numbers[..]));
    assert_eq!(&tensor.into_bytes().expect("a copy")[..], numbers);
    let packed = import(Foreign::of_bytes(DType::FLOAT4_E2M1FN, &[3], &[0x21, 0x03]));
    assert_eq!(packed.expect("legal").as_bytes(), Err(Error::SharedMemory));
    let foreign = Foreign::of_bytes(DType::FLOAT4_E2M1FN, &[3], &[0x21, 0x03]);
    let packed = import(foreign.class(Access::Exclusive)).expect("legal");
    assert_eq!(packed.as_bytes(), Ok(&[0x21, 0x03][..]));
    let rows = Tensor::builder([1_u16, 2, 3, 4]).shape([2, 2]).strides([1, 2]).build::<u16>();
    let wanted = Error::NotContiguous { axis: 0, stride: 1, expected: 2 };
    assert_eq!(rows.expect("it fits").as_bytes(), Err(wanted));
    let empty = import(Foreign::new::<u64>(&[0, 3], &[]).class(Access::Exclusive)).expect("legal");
    assert_eq!(empty.as_bytes(), Ok(&[][..]));
}

#[test]
fn bytes_are_written_to_elements_of_any_type_at_any_address() {
    let bytes = [&[0][..], &[0; 8]].concat();
    let foreign = Foreign::of_bytes(DType::U32, &[2], &bytes).data_at(1).class(Access::Exclusive);
    let mut tensor = import(foreign).expect("legal");
    let numbers = [1_u32, 2].map(u32::to_ne_bytes).concat();
    tensor.as_bytes_mut().expect("a copy").copy_from_slice(&numbers);
    assert_eq!(tensor.view::<u32>().expect("numbers").to_vec(), [1, 2]);
    let mut tensor = Tensor::from(vec![0_u16; 2]);
    tensor.as_bytes_mut().expect("exclusive")[2..].copy_from_slice(&7_u16.to_ne_bytes());
    assert_eq!(tensor.into_owner::<Vec<u16>>().expect("a vector"), [0, 7]);
    let foreign = Foreign::of_bytes(DType::FLOAT4_E2M1FN, &[3], &[0, 0]).class(Access::Exclusive);
    let mut packed = import(foreign).expect("legal");
    packed.as_bytes_mut().expect("a copy")[1] = 3;
    assert_eq!(packed.as_bytes(), Ok(&[0, 3][..]));
    let mut empty = Tensor::from(Vec::<f32>::new());
    assert_eq!(empty.as_bytes_mut(), Ok(&mut [][..]));
}

#[test]
fn bytes_of_memory_that_other_code_reaches_are_not_written() {
    let mut foreign = import(Foreign::new::<u8>(&[1], &[7])).expect("legal");
    assert_eq!(foreign.as_bytes_mut(), Err(Error::SharedMemory));
    let mut frozen = Tensor::from(Arc::<[u8]>::from([7]));
    assert_eq!(frozen.as_bytes_mut(), Err(Error::ReadOnly));
    let rows = Tensor::builder([1_u16, 2, 3, 4]).shape([2, 2]).strides([1, 2]).build::<u16>();
    let wanted = Error::NotContiguous { axis: 0, stride: 1, expected: 2 };
    assert_eq!(rows.expect("it fits").as_bytes_mut(), Err(wanted));
}

#[test]
fn a_lock_is_held_until_the_last_consumer_on_another_thread() {
    let lock = Arc::new(RwLock::new(vec![1_i32, 2, 3]));
    let tensor = Tensor::from_guard(lock.try_read_arc().expect("free"));
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Frozen, true));
    assert_eq!(tensor.data_ptr().cast::<i32>().cast_const(), lock.read().as_ptr());
    // A consumer elsewhere, by its descriptor, and a part of it.
    let tensor = take_back(tensor.into_raw());
    assert!(lock.try_write_arc().is_none() && lock.try_read_arc().is_some());
    thread::spawn(move || drop(tensor)).join().expect("no panic");
    let mut tensor = Tensor::from_guard_mut(lock.try_write_arc().expect("free again")).unwrap();
    assert_eq!(tensor.access(), Access::Exclusive);
    tensor.as_slice_mut::<i32>().expect("exclusive")[0] = 7;
    assert!(lock.try_read_arc().is_none());
    thread::spawn(move || drop(tensor)).join().expect("no panic");
    assert_eq!(*lock.try_read_arc().expect("free again"), [7, 2, 3]);
}

#[test]
fn a_lock_over_booleans_is_not_written() {
    let lock = Arc::new(RwLock::new(vec![true, false]));
    let error = Tensor::from_guard_mut(lock.try_write_arc().expect("free")).unwrap_err();
    assert!(error.to_string().contains("lock an array of u8"), "{error}");
    let tensor = Tensor::from_guard(lock.try_read_arc().expect("free after a refusal"));
    assert_eq!(tensor.view::<bool>().expect("the dtype").to_vec(), [true, false]);
}

/// Is described as bytes when it is borrowed for the first time, and as booleans from then on.
struct Changing {
    bytes: [u8; 2],
    booleans: [bool; 2],
    is_second: bool,
}

impl<'a> From<&'a mut Changing> for TensorMut<'a> {
    fn from(array: &'a mut Changing) -> Self {
        match std::mem::replace(&mut array.is_second, true) {
            false => TensorMut::from(&mut array.bytes[..]),
            true => TensorMut::from(&mut array.booleans[..]),
        }
    }
}

#[test]
fn an_array_that_becomes_booleans_is_not_written() {
    let array = Changing { bytes: [1, 2], booleans: [true, false], is_second: false };
    let error = Tensor::from_guard_mut(Box::new(array)).unwrap_err();
    assert!(error.to_string().contains("lock an array of u8"), "{error}");
}

#[test]
fn nested_arrays_are_tensors_of_two_axes() {
    let rows = vec![[1_i32, 2, 3], [4, 5, 6]];
    let address = rows.as_ptr().cast::<i32>();
    let tensor = Tensor::from(rows);
    assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[3, 1][..]));
    assert_eq!(tensor.data_ptr().cast::<i32>().cast_const(), address);
    assert_eq!(tensor.into_owner::<Vec<[i32; 3]>>().expect("its owner"), [[1, 2, 3], [4, 5, 6]]);
    let mut tensor = Tensor::from([[1.0_f32, 2.0], [3.0, 4.0]]);
    tensor.as_slice_mut::<f32>().expect("exclusive")[3] = 5.0;
    assert_eq!(tensor.view::<f32>().expect("the dtype").get([1, 1]), Some(5.0));
    assert_eq!(Tensor::from(Vec::<[f32; 3]>::new()).shape(), [0, 3]);
    assert_eq!(Tensor::from([[0_u8; 0]; 4]).shape(), [4, 0]);
}
