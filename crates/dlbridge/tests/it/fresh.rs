//! Memory that somebody else's allocator made: zeroed, and counted as ours alone.
//! Memory of the library's own is in `allocations.rs`.
#![allow(unsafe_code, reason = "taking memory over is unsafe by nature")]

use std::ffi::c_void;
use std::ptr;

use dlbridge::{Access, DType, Device, Error, Flags, Tensor};
use dlbridge_testing::CountingOwner;

/// Memory that an allocator left as it was, and of which nobody else knows.
fn fresh<T: Copy + Send + 'static>(
    memory: &[T],
    dtype: DType,
    shape: &[i64],
    strides: &[i64],
    flags: Flags,
) -> Tensor {
    let mut owner = memory.to_vec();
    let data = owner.as_mut_ptr();
    let builder = Tensor::builder(owner).dtype(dtype).shape(shape).strides(strides);
    // SAFETY: each test describes the memory of the vector, which does not move with it.
    unsafe { builder.build_raw(data.cast(), Device::CPU, flags) }.expect("legal")
}

fn claim(tensor: Tensor) -> Result<Tensor, Error> {
    // SAFETY: each test made the memory for this tensor alone.
    unsafe { dlbridge::ffi::into_exclusive_zeroed(tensor) }
}

#[test]
fn what_was_there_before_is_gone_and_what_is_written_stays() {
    let tensor = fresh(&[7_u32; 6], DType::U32, &[2, 3], &[3, 1], Flags::NONE);
    assert_eq!(tensor.access(), Access::Shared);
    let mut tensor = claim(tensor).expect("contiguous and writable");
    assert_eq!(tensor.access(), Access::Exclusive);
    assert_eq!(tensor.as_slice::<u32>(), Ok(&[0; 6][..]));
    tensor.as_slice_mut::<u32>().expect("nobody else has it")[5] = 9;
    assert_eq!(tensor.view::<u32>().expect("u32").to_vec(), [0, 0, 0, 0, 0, 9]);
}

#[test]
fn nothing_beside_the_elements_is_written() {
    let packed = DType { bits: 4, ..DType::U8 };
    let mut room = [0xff_u8; 4];
    let data: *mut c_void = room.as_mut_ptr().cast();
    let builder = Tensor::builder(()).dtype(packed).shape(&[3]);
    // SAFETY: three elements take two bytes of the four, which outlive the tensor.
    let tensor = unsafe { builder.build_raw(data, Device::CPU, Flags::NONE) }.expect("legal");
    drop(claim(tensor).expect("contiguous and writable"));
    assert_eq!(room, [0, 0, 0xff, 0xff]);
}

#[test]
fn tensors_without_elements_have_nothing_to_zero() {
    let builder = Tensor::builder(()).dtype(DType::F64).shape(&[0, 3]);
    // SAFETY: there are no elements.
    let tensor = unsafe { builder.build_raw(ptr::null_mut(), Device::CPU, Flags::NONE) };
    let tensor = claim(tensor.expect("legal")).expect("contiguous and writable");
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[][..]));
}

#[test]
fn memory_of_a_device_is_not_touched() {
    let builder = Tensor::builder(()).dtype(DType::F32).shape(&[1 << 20]);
    let nowhere = ptr::without_provenance_mut(0x7000);
    // SAFETY: nobody reads or writes there.
    let tensor = unsafe { builder.build_raw(nowhere, Device::cuda(0), Flags::NONE) };
    let tensor = claim(tensor.expect("legal")).expect("contiguous and writable");
    assert_eq!((tensor.access(), tensor.data_ptr()), (Access::Exclusive, nowhere));
}

#[test]
fn what_is_refused_is_released_once() {
    let refused = |strides: &[i64], flags| {
        let owner = CountingOwner::new([7_u8; 8]);
        let (drops, data) = (owner.drops(), owner.as_ptr().cast_mut().cast());
        let builder = Tensor::builder(owner).dtype(DType::U8).shape(&[4]).strides(strides);
        // SAFETY: the memory is the owner's.
        let tensor = unsafe { builder.build_raw(data, Device::CPU, flags) }.expect("legal");
        let error = claim(tensor).map(drop).expect_err("no memory to write to");
        assert_eq!(drops.count(), 1);
        error
    };
    assert_eq!(refused(&[1], Flags::READ_ONLY), Error::ReadOnly);
    let wanted = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
    assert_eq!(refused(&[2], Flags::NONE), wanted);
}
