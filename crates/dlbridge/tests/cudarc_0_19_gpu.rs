//! `cudarc` 0.19 on a GPU: slices both ways, ordered by events. Run by `scripts/gpu-tests.sh`, and
//! everywhere with a fake driver. What shows without either is in `cudarc_0_19.rs`.
#![cfg(all(feature = "cudarc-0_19", not(miri)))]

#[path = "it/common/mod.rs"]
mod common;

use std::sync::Arc;
use std::{env, thread};

use common::import;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use dlbridge::cudarc_0_19::{self, OwnedSlice};
use dlbridge::{Access, Device, Error, Tensor};
use dlbridge_testing::{FakeDriver, Foreign};

/// Enough for a copy to take a while. The fake driver is late with little as well.
fn many() -> usize {
    if env::var_os("FAKE_DRIVER_FORGETS").is_some() { 1 << 10 } else { 64 << 20 }
}

fn streams() -> (Arc<CudaContext>, Arc<CudaStream>, Arc<CudaStream>) {
    let context = cudarc_0_19::context(Device::cuda(0)).expect("a GPU");
    let [ours, theirs] = [(); 2].map(|()| context.new_stream().expect("a stream"));
    (context, ours, theirs)
}

/// Zeros, and much work on the stream before the last one makes them `value`.
fn late(stream: &Arc<CudaStream>, value: u8) -> CudaSlice<u8> {
    let mut slice = stream.alloc_zeros::<u8>(many()).expect("memory");
    let copy = stream.alloc_zeros::<u8>(many()).expect("memory");
    for _ in 0..100 {
        stream.memcpy_dtod(&copy, &mut slice).expect("queued");
    }
    stream.memcpy_htod(&vec![value; many()], &mut slice).expect("queued");
    slice
}

#[test]
#[ignore = "needs a GPU"]
fn a_slice_goes_there_and_back() {
    let (_context, ours, theirs) = streams();
    let slice = theirs.clone_htod(&[1_i32, 2, 3, 4, 5, 6]).expect("memory");
    let tensor = Tensor::builder(slice).shape([2, 3]).build_cuda().expect("it fits");
    assert_eq!((tensor.device(), tensor.access()), (Device::cuda(0), Access::Exclusive));
    assert_eq!(cudarc_0_19::stream(&tensor), Some(&theirs));
    let (address, error) = (tensor.data_ptr(), tensor.view::<i32>().map(drop));
    assert_eq!(error, Err(Error::NotHostAccessible { device: Device::cuda(0) }));
    let slice = OwnedSlice::<i32>::new(tensor, &ours).expect("the same device");
    assert_eq!(slice.tensor().data_ptr(), address);
    assert_eq!(ours.clone_dtoh(&*slice).expect("a copy"), [1, 2, 3, 4, 5, 6]);
}

#[test]
#[ignore = "needs a GPU"]
fn a_slice_comes_back_out_as_it_was() {
    let (_context, _, theirs) = streams();
    let slice = theirs.clone_htod(&[1.0_f32, 2.0, 3.0]).expect("memory");
    let tensor = Tensor::builder(slice).shape([1]).offset(1).build_cuda().expect("it fits");
    let tensor = tensor.into_as::<CudaSlice<i32>>().expect_err("floats");
    let slice = tensor.into_as::<CudaSlice<f32>>().expect("floats");
    assert_eq!(theirs.clone_dtoh(&slice).expect("a copy"), [1.0, 2.0, 3.0]);
}

#[test]
#[ignore = "needs a GPU"]
fn our_stream_waits_for_the_producers() {
    let (_context, ours, theirs) = streams();
    let tensor = Tensor::try_from(late(&theirs, 7)).expect("it fits");
    let found = cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
    let found = found.expect("the same device").expect("a copy");
    assert!(found.iter().all(|&value| value == 7), "read before it was written");
}

#[test]
#[ignore = "needs a GPU"]
fn the_producers_stream_waits_for_ours() {
    let (_context, ours, theirs) = streams();
    let mut tensor = Tensor::try_from(late(&theirs, 7)).expect("it fits");
    let written = cudarc_0_19::with_view_mut::<u8, _>(&mut tensor, &ours, |mut view| {
        ours.memset_zeros(&mut view).expect("queued");
    });
    written.expect("exclusive");
    let slice = tensor.into_as::<CudaSlice<u8>>().expect("bytes");
    let found = theirs.clone_dtoh(&slice).expect("a copy");
    assert!(found.iter().all(|&value| value == 0), "read before it was written");
}

#[test]
#[ignore = "needs a GPU"]
fn what_others_hold_is_not_borrowed_for_writing() {
    let (_context, ours, theirs) = streams();
    let tensor = Tensor::try_from(late(&theirs, 1)).expect("it fits").into_shared().into();
    let mut slice = OwnedSlice::<u8>::new(tensor, &ours).expect("the same device");
    assert_eq!(slice.as_view_mut().map(drop), Err(Error::SharedMemory));
    thread::spawn(move || drop(slice)).join().expect("no panic on another thread");
}

#[test]
#[ignore = "needs a GPU"]
fn a_chosen_shape_stays_inside_the_slice() {
    let (_context, _, theirs) = streams();
    let build = |shape: &[i64], offset| {
        let slice = theirs.alloc_zeros::<f64>(6).expect("memory");
        Tensor::builder(slice).shape(shape).offset(offset).build_cuda().map(drop)
    };
    assert_eq!(build(&[2, 3], 0), Ok(()));
    assert!(matches!(build(&[2, 3], 1), Err(Error::OutOfBounds { .. })));
    assert!(matches!(build(&[7], 0), Err(Error::OutOfBounds { .. })));
}

#[test]
#[ignore = "needs a GPU"]
fn memory_is_not_used_again_before_our_stream_has_read_it() {
    let (_context, ours, theirs) = streams();
    let slice = OwnedSlice::<u8>::new(Tensor::try_from(late(&theirs, 7)).expect("it fits"), &ours);
    let slice = slice.expect("the same device");
    let mut copy = ours.alloc_zeros::<u8>(many()).expect("memory");
    ours.memcpy_dtod(&*slice, &mut copy).expect("queued");
    thread::spawn(move || drop(slice)).join().expect("no panic on another thread");
    let again = late(&theirs, 1);
    theirs.synchronize().expect("no error");
    drop(again);
    let found = ours.clone_dtoh(&copy).expect("a copy");
    assert!(found.iter().all(|&value| value == 7), "freed before it was read");
}

#[test]
#[ignore = "needs a GPU"]
fn every_shape_is_a_tensor_and_the_contiguous_ones_are_slices() {
    let (_context, ours, theirs) = streams();
    let build = |shape: &[i64], strides: Option<&[i64]>, offset| {
        let slice = theirs.clone_htod(&[1_u16, 2, 3, 4]).expect("memory");
        let builder = Tensor::builder(slice).shape(shape).offset(offset);
        match strides {
            Some(strides) => builder.strides(strides).build_cuda().expect("it fits"),
            None => builder.build_cuda().expect("it fits"),
        }
    };
    let read = |tensor: &Tensor| {
        let read = cudarc_0_19::with_slice::<u16, _>(tensor, &ours, |slice| ours.clone_dtoh(slice));
        read.map(|copy| copy.expect("a copy"))
    };
    assert_eq!(read(&build(&[], None, 2)), Ok(vec![3]));
    assert_eq!(read(&build(&[2, 2], None, 0)), Ok(vec![1, 2, 3, 4]));
    assert_eq!(build(&[0, 3], None, 0).len(), 0);
    let gap = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
    assert_eq!(read(&build(&[2], Some(&[2]), 0)), Err(gap));
    let reversed = Error::NotContiguous { axis: 0, stride: -1, expected: 1 };
    assert_eq!(read(&build(&[4], Some(&[-1]), 3)), Err(reversed));
}

#[test]
#[ignore = "needs a GPU"]
fn a_tensor_that_is_shared_tells_its_stream_and_is_only_read() {
    let (_context, ours, theirs) = streams();
    let first = Tensor::try_from(late(&theirs, 7)).expect("it fits").into_frozen();
    let shared = Tensor::from(first.clone());
    assert_eq!(shared.data_ptr(), first.data_ptr());
    let slice = Arc::new(late(&theirs, 7));
    let borrowed = Tensor::try_from(Arc::clone(&slice)).expect("it fits");
    let (address, _recorded) = slice.device_ptr(&theirs);
    assert_eq!(borrowed.data_ptr().addr() as u64, address);
    for mut tensor in [shared, borrowed] {
        assert_eq!(
            (cudarc_0_19::stream(&tensor), tensor.access()),
            (Some(&theirs), Access::Frozen)
        );
        assert_eq!(tensor.stream_handle(), Some(theirs.cu_stream().cast()));
        let refused = cudarc_0_19::with_view_mut::<u8, _>(&mut tensor, &ours, |_| ());
        assert_eq!(refused, Err(Error::ReadOnly));
        let found =
            cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
        let found = found.expect("the same device").expect("a copy");
        assert!(found.iter().all(|&value| value == 7), "read before it was written");
        assert!(tensor.into_as::<CudaSlice<u8>>().is_err(), "others have it, too");
    }
    assert_eq!(Arc::strong_count(&slice), 1);
}

#[test]
#[ignore = "needs a GPU"]
fn a_tensor_of_another_producer_is_read_after_the_default_stream() {
    let (context, ours, _) = streams();
    let slice = late(&context.default_stream(), 7);
    let (address, _recorded) = slice.device_ptr(slice.stream());
    let data = std::ptr::without_provenance_mut(address as usize);
    let foreign = Foreign::new(&[many() as i64], &[0_u8]).device(Device::cuda(0)).data(data);
    let tensor = import(foreign).expect("legal");
    let found = cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
    let found = found.expect("the same device").expect("a copy");
    assert!(found.iter().all(|&value| value == 7), "read before it was written");
}

#[test]
#[ignore = "needs a GPU"]
fn a_threads_own_stream_is_left_for_one_of_all_threads() {
    let (context, ours, _) = streams();
    let slice = late(&context.per_thread_stream(), 7);
    let tensor = Tensor::try_from(slice).expect("it fits");
    assert_eq!(cudarc_0_19::stream(&tensor), Some(&context.default_stream()));
    let read = thread::spawn(move || {
        let found =
            cudarc_0_19::with_slice::<u8, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
        found.expect("the same device").expect("a copy")
    });
    let found = read.join().expect("no panic on another thread");
    assert!(found.iter().all(|&value| value == 7), "read before it was written");
}

/// How many tests for a GPU there are in this file.
const TESTS: usize = 11;

#[test]
fn the_tests_pass_with_a_fake_driver() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    let said = driver.rerun(&["--ignored"]);
    assert!(said.contains(&format!("{TESTS} passed; 0 failed")), "{said}");
}

#[test]
fn the_tests_fail_where_no_stream_waits() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    let forgets = [("FAKE_DRIVER_FORGETS", "cuStreamWaitEvent")];
    for test in [
        "our_stream_waits_for_the_producers",
        "the_producers_stream_waits_for_ours",
        "memory_is_not_used_again_before_our_stream_has_read_it",
        "a_threads_own_stream_is_left_for_one_of_all_threads",
        "a_tensor_of_another_producer_is_read_after_the_default_stream",
    ] {
        let said = driver.rerun_with(&forgets, &["--ignored", "--exact", test]);
        assert!(!said.contains("1 passed"), "{test}: {said}");
    }
}
