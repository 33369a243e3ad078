//! Borrowed tensors: borrowed to C functions and taken from them, without a copy.
//! Borrowed ndarray arrays are in `ndarray_0_17.rs`, lifetimes in `ui/`.
#![allow(unsafe_code, reason = "C functions are played")]

use std::ptr;

use dlbridge::sys::DLTensor;
use dlbridge::{Access, Error, Flags, Tensor, TensorMut, TensorRef};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

use crate::common::{SIX, delete, import, take_back};

/// A C function: the sum of a vector.
///
/// # Safety
///
/// A live descriptor of a contiguous vector of `f64`.
unsafe extern "C" fn sum(tensor: *const DLTensor) -> f64 {
    // SAFETY: the caller's duty.
    let tensor = unsafe { &*tensor };
    assert_eq!((tensor.ndim, tensor.byte_offset), (1, 0));
    // SAFETY: one axis.
    let len = unsafe { tensor.shape.read() };
    // SAFETY: the same, explicitly.
    assert_eq!(unsafe { tensor.strides.read() }, 1);
    let data = tensor.data.cast::<f64>();
    // SAFETY: as many elements as the axis has.
    (0..len as usize).map(|i| unsafe { data.wrapping_add(i).read() }).sum()
}

/// A C function: doubles the elements of a vector.
///
/// # Safety
///
/// As for [`sum`], and writable.
unsafe extern "C" fn double(tensor: *mut DLTensor) {
    // SAFETY: the caller's duty.
    let tensor = unsafe { &*tensor };
    // SAFETY: one axis.
    let len = unsafe { tensor.shape.read() };
    for i in 0..len as usize {
        let at = tensor.data.cast::<f64>().wrapping_add(i);
        // SAFETY: as many elements as the axis has.
        let value = unsafe { at.read() };
        // SAFETY: and writable.
        unsafe { at.write(2.0 * value) };
    }
}

#[test]
fn a_slice_is_borrowed_to_a_c_function() {
    let values = [1.0, 2.0, 3.5];
    let tensor = TensorRef::from(&values[..]);
    conformance::borrowed(&tensor, &Expected::new(&[3], &values).at(values.as_ptr()));
    // SAFETY: the descriptor is that of a vector, alive for the call.
    assert_eq!(tensor.with_raw(|descriptor| unsafe { sum(descriptor) }), 6.5);
}

#[test]
fn a_mutable_slice_is_written_by_a_c_function() {
    let mut values = vec![1.0, 2.0, 3.5];
    let mut tensor = TensorMut::from(&mut values[..]);
    assert_eq!((tensor.access(), tensor.flags()), (Access::Exclusive, Flags::NONE));
    // SAFETY: the descriptor is that of a vector, alive for the call, and writable.
    tensor.with_raw(|descriptor| unsafe { double(descriptor) });
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[2.0, 4.0, 7.0][..]));
    tensor.as_slice_mut::<f64>().expect("exclusive")[0] = 0.5;
    tensor.view_mut::<f64>().expect("exclusive").map_inplace(|x| x + 1.0);
    assert_eq!(values, [1.5, 5.0, 8.0]);
}

#[test]
fn an_owned_tensor_is_borrowed_to_a_c_function() {
    let tensor = Tensor::from(vec![1.0, 2.0]);
    let borrowed = tensor.as_tensor_ref();
    assert_eq!(borrowed.data_ptr(), tensor.data_ptr());
    // SAFETY: the descriptor is that of a vector, alive for the call.
    assert_eq!(borrowed.with_raw(|descriptor| unsafe { sum(descriptor) }), 3.0);
    let raw = tensor.as_raw();
    // SAFETY: the same.
    assert_eq!(unsafe { sum(&raw) }, 3.0);
}

#[test]
fn a_descriptor_borrowed_from_c_is_memory_that_others_may_write() {
    let mut foreign = Foreign::new(&[2, 3], &[1, 2, 3, 4, 5, 6]).null_strides().byte_offset(0);
    let data = foreign.memory();
    foreign.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends.
        let tensor = unsafe { TensorRef::from_raw(descriptor) }.expect("legal");
        assert_eq!(tensor.data_ptr().cast(), data);
        assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3][..], &[3, 1][..]));
        assert_eq!((tensor.access(), tensor.flags()), (Access::Shared, Flags::READ_ONLY));
        assert_eq!(tensor.view::<i32>().expect("host").to_vec(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(tensor.as_slice::<i32>(), Err(Error::SharedMemory));
        let copy = tensor.to_contiguous().expect("host");
        assert_eq!(copy.as_slice::<i32>(), Ok(&[1, 2, 3, 4, 5, 6][..]));
    });
}

#[test]
fn a_borrowed_descriptor_may_go_as_soon_as_it_was_read() {
    let mut foreign = Foreign::new(&[2], &[1_u8, 2]);
    let mut kept = foreign.with_raw(|descriptor| {
        // SAFETY: the descriptor is copied; what it points to belongs to `foreign`.
        unsafe { descriptor.read() }
    });
    // SAFETY: shape, strides and elements live as long as `foreign`.
    let tensor = unsafe { TensorRef::from_raw(&raw const kept) }.expect("legal");
    kept.ndim = -1;
    kept.data = ptr::null_mut();
    assert_eq!(tensor.view::<u8>().expect("host").to_vec(), [1, 2]);
    assert_eq!(kept.ndim, -1);
}

// Memory that a plain descriptor describes: kept by an owner, or borrowed for a closure.

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
fn a_borrowed_tensor_is_read_and_not_released() {
    let source = Foreign::new(&[2, 3], &SIX);
    let releases = source.releases();
    let tensor = import(source).unwrap();
    let descriptor = tensor.as_raw();
    // SAFETY: `tensor` keeps the memory longer.
    let borrowed = unsafe { TensorRef::from_raw(&descriptor) }.unwrap();
    assert_eq!((borrowed.shape(), borrowed.access()), (&[2, 3][..], Access::Shared));
    assert!(borrowed.is_read_only());
    assert_eq!(borrowed.as_slice::<f32>(), Err(Error::SharedMemory));
    assert_eq!(borrowed.view::<f32>().unwrap().iter().sum::<f32>(), 15.0);
    releases.expect(0, "after the loan");
    drop(tensor);
    releases.expect(1, "after the tensor");
}

#[test]
fn a_loan_may_be_exported_again_only_by_copy() {
    let tensor = Tensor::from(Tensor::from(vec![1_i32, 2, 3]).into_shared());
    let descriptor = tensor.as_raw();
    // SAFETY: `tensor` keeps the memory longer.
    let borrowed = unsafe { TensorRef::from_raw(&descriptor) }.unwrap();
    let copy = borrowed.to_contiguous().unwrap();
    drop(tensor);
    assert_eq!(copy.as_slice::<i32>().unwrap(), [1, 2, 3]);
    delete(copy.into_raw());
}
