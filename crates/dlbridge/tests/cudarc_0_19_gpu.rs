//! `cudarc` 0.19 on a GPU: slices both ways, ordered by events. Run by `scripts/gpu-tests.sh`.
//! What shows without one is in `cudarc_0_19.rs`.
#![cfg(all(feature = "testing", feature = "cudarc-0_19", not(miri)))]

use std::sync::Arc;
use std::thread;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use dlbridge::cudarc_0_19::OwnedSlice;
use dlbridge::{Access, Device, Error, Tensor};

/// Enough for a copy to take a while.
const MANY: usize = 64 << 20;

fn streams() -> (Arc<CudaContext>, Arc<CudaStream>, Arc<CudaStream>) {
    let context = Device::cuda(0).cuda_context().expect("a GPU");
    let [ours, theirs] = [(); 2].map(|()| context.new_stream().expect("a stream"));
    (context, ours, theirs)
}

/// Zeros, and much work on the stream before the last one makes them `value`.
fn late(stream: &Arc<CudaStream>, value: u8) -> CudaSlice<u8> {
    let mut slice = stream.alloc_zeros::<u8>(MANY).expect("memory");
    let copy = stream.alloc_zeros::<u8>(MANY).expect("memory");
    for _ in 0..100 {
        stream.memcpy_dtod(&copy, &mut slice).expect("queued");
    }
    stream.memcpy_htod(&vec![value; MANY], &mut slice).expect("queued");
    slice
}

#[test]
#[ignore = "needs a GPU"]
fn a_slice_goes_there_and_back() {
    let (_context, ours, theirs) = streams();
    let slice = theirs.clone_htod(&[1_i32, 2, 3, 4, 5, 6]).expect("memory");
    let tensor = Tensor::builder(slice).shape(&[2, 3]).build_cuda().expect("it fits");
    assert_eq!((tensor.device(), tensor.access()), (Device::cuda(0), Access::Exclusive));
    assert_eq!(tensor.cuda_stream(), Some(&theirs));
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
    let tensor = Tensor::builder(slice).shape(&[1]).offset(1).build_cuda().expect("it fits");
    let tensor = tensor.into_cuda_slice::<i32>().expect_err("floats");
    let slice = tensor.into_cuda_slice::<f32>().expect("floats");
    assert_eq!(theirs.clone_dtoh(&slice).expect("a copy"), [1.0, 2.0, 3.0]);
}

#[test]
#[ignore = "needs a GPU"]
fn our_stream_waits_for_the_producers() {
    let (_context, ours, theirs) = streams();
    let tensor = Tensor::try_from(late(&theirs, 7)).expect("it fits");
    let found = tensor.with_cuda_slice::<u8, _>(&ours, |slice| ours.clone_dtoh(slice));
    let found = found.expect("the same device").expect("a copy");
    assert!(found.iter().all(|&value| value == 7), "read before it was written");
}

#[test]
#[ignore = "needs a GPU"]
fn the_producers_stream_waits_for_ours() {
    let (_context, ours, theirs) = streams();
    let mut tensor = Tensor::try_from(late(&theirs, 7)).expect("it fits");
    let written = tensor.with_cuda_view_mut::<u8, _>(&ours, |mut view| {
        ours.memset_zeros(&mut view).expect("queued");
    });
    written.expect("exclusive");
    let slice = tensor.into_cuda_slice::<u8>().expect("bytes");
    let found = theirs.clone_dtoh(&slice).expect("a copy");
    assert!(found.iter().all(|&value| value == 0), "read before it was written");
}

#[test]
#[ignore = "needs a GPU"]
fn what_others_hold_is_not_lent_for_writing() {
    let (_context, ours, theirs) = streams();
    let tensor = Tensor::try_from(late(&theirs, 1)).expect("it fits").into_shared();
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
