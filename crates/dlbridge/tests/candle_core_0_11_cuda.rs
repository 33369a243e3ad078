//! `candle-core` 0.11 on CUDA, as far as it shows where Candle is built without: with a fake
//! driver, tensors on the CPU say that their elements are in a CUDA slice.
#![cfg(all(feature = "candle-core-0_11-cuda", not(miri)))]

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use candle_core::{Device as CandleDevice, Var};
use cudarc::driver::{CudaSlice, DevicePtr};
use dlbridge::{Access, Device, Error, candle_core_0_11_cuda, cudarc_0_19};
use dlbridge_testing::FakeDriver;

/// A slice that lives as long as the program, as one in a storage that is locked does.
fn slice(values: &[f32]) -> &'static CudaSlice<f32> {
    let context = cudarc_0_19::context(Device::cuda(0)).expect("the fake driver");
    let stream = context.new_stream().unwrap();
    let mut slice = stream.alloc_zeros::<f32>(values.len()).unwrap();
    stream.synchronize().unwrap();
    stream.memcpy_htod(values, &mut slice).unwrap();
    Box::leak(Box::new(slice))
}

fn candle(shape: (usize, usize)) -> candle_core::Tensor {
    candle_core::Tensor::zeros(shape, candle_core::DType::F32, &CandleDevice::Cpu).unwrap()
}

#[test]
#[ignore = "needs a driver"]
fn a_tensor_is_the_memory_of_the_slice_as_its_layout_says() {
    let slice = slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let column = candle((2, 3)).t().unwrap().narrow(0, 1, 2).unwrap();
    let tensor =
        candle_core_0_11_cuda::from_candle::<f32>(column, |_| Some(slice)).expect("it fits");
    assert_eq!((tensor.device(), tensor.access()), (Device::cuda(0), Access::Frozen));
    assert_eq!((tensor.shape(), tensor.strides()), (&[2, 2][..], &[1, 3][..]));
    let (start, _recorded) = slice.device_ptr(slice.stream());
    assert_eq!(tensor.data_ptr().addr() as u64, start + 4, "from the second element on");
    assert_eq!(cudarc_0_19::stream(&tensor), Some(slice.stream()));
}

#[test]
#[ignore = "needs a driver"]
fn another_stream_waits_for_candles() {
    let slice = slice(&[7.0; 6]);
    let tensor =
        candle_core_0_11_cuda::from_candle(candle((2, 3)), |_| Some(slice)).expect("it fits");
    let ours = slice.context().new_stream().unwrap();
    let read = cudarc_0_19::with_slice::<f32, _>(&tensor, &ours, |slice| ours.clone_dtoh(slice));
    assert_eq!(read.expect("the same device").expect("a copy"), [7.0; 6]);
}

#[test]
#[ignore = "needs a driver"]
fn a_layout_that_reaches_past_the_slice_is_refused() {
    let slice = slice(&[7.0; 5]);
    let refused = candle_core_0_11_cuda::from_candle(candle((2, 3)), |_| Some(slice));
    let wanted = Error::OutOfBounds { low: 0, high: 24, size: 20 };
    assert_eq!(refused.map(drop), Err(wanted));
}

#[test]
#[ignore = "needs a driver"]
fn candle_writes_when_the_tensor_is_gone() {
    let slice = slice(&[7.0; 6]);
    let var = Var::from_tensor(&candle((2, 3))).unwrap();
    let tensor =
        candle_core_0_11_cuda::from_candle(var.as_detached_tensor(), |_| Some(slice)).unwrap();
    let (sender, written) = mpsc::channel();
    let writer = thread::spawn(move || {
        var.set(&candle((2, 3))).unwrap();
        sender.send(()).unwrap();
    });
    assert!(written.recv_timeout(Duration::from_millis(50)).is_err(), "it is locked");
    thread::spawn(move || drop(tensor)).join().unwrap();
    written.recv().expect("it is unlocked");
    writer.join().unwrap();
}

/// How many tests need the driver.
const TESTS: usize = 4;

#[test]
fn the_tests_pass_with_a_fake_driver() {
    let Some(driver) = FakeDriver::build_or_skip() else { return };
    let said = driver.rerun(&["--ignored"]);
    assert!(said.contains(&format!("{TESTS} passed; 0 failed")), "{said}");
    let said = driver.rerun_with(&[("FAKE_DRIVER_FORGETS", "cuStreamWaitEvent")], &["--ignored"]);
    assert!(said.contains("test another_stream_waits_for_candles ... FAILED"), "{said}");
}

#[test]
fn memory_without_a_slice_is_refused() {
    let refused = candle_core_0_11_cuda::from_candle::<f32>(candle((2, 3)), |_| None).map(drop);
    let error = refused.expect_err("on the CPU").to_string();
    assert_eq!(error, "storage: expected one with a CUDA slice of these elements, found Cpu");
    let refused = candle_core_0_11_cuda::from_candle::<i64>(candle((2, 3)), |_| None).map(drop);
    assert!(matches!(refused, Err(Error::DTypeMismatch { .. })), "{refused:?}");
}
