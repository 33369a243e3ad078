//! Memory that a plain descriptor describes: kept by an owner, or borrowed for a closure.
//! Managed descriptors are in `validation.rs`, chosen shapes in `build_raw.rs`.
#![allow(unsafe_code, reason = "a plain descriptor is believed, which is unsafe by nature")]

use std::ptr;

use crate::common::{SIX, delete, import, take_back};
use dlbridge::ffi::BorrowedTensor;
use dlbridge::sys::DLTensor;
use dlbridge::{Access, DescriptorError, Error, Flags, Tensor};
use dlbridge_testing::{CountingOwner, Foreign};

/// A tensor over the memory of `owner`, as six floats in two rows.
fn kept(
    owner: CountingOwner<f32>,
    change: impl FnOnce(&mut DLTensor),
    flags: Flags,
) -> Result<Tensor, Error> {
    let (shape, strides) = ([2_i64, 3], [3_i64, 1]);
    let mut tensor = Tensor::from(vec![0.0_f32; 6]).as_raw();
    tensor.data = owner.as_ptr().cast_mut().cast();
    tensor.ndim = 2;
    tensor.shape = shape.as_ptr().cast_mut();
    tensor.strides = strides.as_ptr().cast_mut();
    change(&mut tensor);
    // SAFETY: the owner keeps its six floats, which nobody else has; the lists live during the call.
    unsafe { dlbridge::ffi::from_owner_raw(owner, &tensor, flags) }
}

#[test]
fn an_owner_keeps_what_was_described_and_the_descriptor_may_go() {
    let owner = CountingOwner::new(SIX);
    let (drops, address) = (owner.drops(), owner.as_ptr());
    let tensor = kept(owner, |_| {}, Flags::READ_ONLY).unwrap();
    assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[3, 1][..]));
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Shared, true));
    assert_eq!(tensor.data_ptr().cast_const().cast(), address);
    assert!(dlbridge::ffi::raw_fields(&tensor).is_none());
    let tensor = take_back(tensor.into_raw());
    assert_eq!(tensor.view::<f32>().unwrap().to_vec(), SIX);
    drops.expect(0, "while there is a tensor");
    drop(tensor);
    drops.expect(1, "after the tensor");
}

#[test]
fn an_offset_and_missing_strides_are_evened_out() {
    let owner = CountingOwner::new(SIX);
    let change = |tensor: &mut DLTensor| {
        tensor.byte_offset = 8;
        tensor.ndim = 1;
        tensor.strides = ptr::null_mut();
    };
    let tensor = kept(owner, change, Flags::NONE).unwrap();
    assert_eq!((tensor.shape(), tensor.strides(), tensor.byte_offset()), (&[2][..], &[1][..], 0));
    assert_eq!(tensor.view::<f32>().unwrap().to_vec(), [2.0, 3.0]);
}

#[test]
fn the_owner_of_a_refused_tensor_is_dropped_once() {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let error = kept(owner, |tensor| tensor.ndim = -1, Flags::NONE).unwrap_err();
    assert_eq!(error, Error::Descriptor(DescriptorError::RankOutOfRange { ndim: -1 }));
    drops.expect(1, "after the refusal");
}

#[test]
fn a_described_copy_is_shared() {
    let tensor = kept(CountingOwner::new(SIX), |_| {}, Flags::IS_COPIED).unwrap();
    assert_eq!((tensor.access(), tensor.is_copied()), (Access::Shared, true));
}

#[test]
fn a_borrowed_tensor_is_read_and_not_released() {
    let source = Foreign::new(&[2, 3], &SIX);
    let releases = source.releases();
    let tensor = import(source).unwrap();
    let mut descriptor = tensor.as_raw();
    let mut strides = BorrowedTensor::NO_STRIDES;
    // SAFETY: `tensor` keeps the memory longer.
    let borrowed =
        unsafe { BorrowedTensor::from_raw(&mut descriptor, &mut strides, Flags::READ_ONLY) }
            .unwrap();
    assert_eq!((borrowed.shape(), borrowed.access()), (&[2, 3][..], Access::Shared));
    assert!(borrowed.is_read_only() && dlbridge::ffi::raw_fields(&borrowed).is_none());
    assert_eq!(borrowed.as_slice::<f32>(), Err(Error::SharedMemory));
    assert_eq!(borrowed.view::<f32>().unwrap().iter().sum::<f32>(), 15.0);
    releases.expect(0, "after the loan");
    drop(tensor);
    releases.expect(1, "after the tensor");
}

#[test]
fn strides_are_made_for_a_loan() {
    let tensor = Tensor::from(vec![1_i32, 2, 3]);
    let mut raw = tensor.as_raw();
    raw.strides = ptr::null_mut();
    let mut strides = BorrowedTensor::NO_STRIDES;
    // SAFETY: `tensor` keeps the memory longer.
    let borrowed =
        unsafe { BorrowedTensor::from_raw(&mut raw, &mut strides, Flags::NONE) }.unwrap();
    assert_eq!(borrowed.strides(), [1]);
}

#[test]
fn an_invalid_descriptor_is_not_borrowed() {
    let mut raw = Tensor::from(vec![1_i32, 2, 3]).as_raw();
    raw.data = ptr::null_mut();
    // Its lists were those of a tensor that is gone.
    raw.ndim = 0;
    let mut strides = BorrowedTensor::NO_STRIDES;
    // SAFETY: nothing is read of a descriptor that is refused.
    let borrowed = unsafe { BorrowedTensor::from_raw(&mut raw, &mut strides, Flags::NONE) };
    assert_eq!(borrowed.err(), Some(DescriptorError::NullData { len: 1 }.into()));
}

#[test]
fn a_loan_may_be_exported_again_only_by_copy() {
    let tensor = Tensor::from(Tensor::from(vec![1_i32, 2, 3]).into_shared());
    let mut descriptor = tensor.as_raw();
    let mut strides = BorrowedTensor::NO_STRIDES;
    // SAFETY: `tensor` keeps the memory longer.
    let borrowed =
        unsafe { BorrowedTensor::from_raw(&mut descriptor, &mut strides, Flags::NONE) }.unwrap();
    let copy = borrowed.to_contiguous().unwrap();
    drop(tensor);
    assert_eq!(copy.as_slice::<i32>().unwrap(), [1, 2, 3]);
    delete(copy.into_raw());
}
