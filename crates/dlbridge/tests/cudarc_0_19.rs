//! `cudarc` 0.19, as far as it shows where there is no GPU: that it builds, and what it says.
//! What needs one is in `cudarc_0_19_gpu.rs`.
#![cfg(all(feature = "cudarc-0_19", not(miri)))]

#[path = "it/common/mod.rs"]
mod common;

use common::import;
use cudarc::driver::CudaSlice;
use dlbridge::cudarc_0_19::{self, OwnedSlice};
use dlbridge::{Device, DeviceKind, Error, Tensor};
use dlbridge_testing::Foreign;

/// A tensor that claims to lie on a GPU.
fn far() -> Tensor {
    import(Foreign::new(&[2], &[1_i32, 2]).device(Device::cuda(0))).expect("legal")
}

#[test]
fn a_missing_driver_or_device_is_said() {
    // No machine has that many.
    let error = cudarc_0_19::context(Device::cuda(4096)).map(drop).expect_err("no such device");
    let said = error.to_string();
    assert!(said.starts_with("driver: opening the device: "), "{said}");
    let again = cudarc_0_19::context(Device::cuda(4096)).map(drop).expect_err("no such device");
    assert_eq!(again, error, "asking twice is no different");
}

/// cudarc panics without a driver, and the hook of the program printed that before the error came.
#[test]
fn a_missing_driver_prints_no_panic() {
    const CHILD: &str = "DLBRIDGE_TEST_NO_DRIVER";
    if std::env::var_os(CHILD).is_some() {
        let _ = cudarc_0_19::context(Device::cuda(0));
        return;
    }
    let program = std::env::current_exe().expect("a program knows where it is");
    let arguments = ["--exact", "a_missing_driver_prints_no_panic", "--nocapture"];
    let done = std::process::Command::new(program).args(arguments).env(CHILD, "1").output();
    let said = String::from_utf8_lossy(&done.expect("it ran before").stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn other_devices_have_no_context() {
    for device in [Device::CPU, Device::new(DeviceKind::ROCM, 0), Device::cuda(-1)] {
        let wanted = Error::DeviceMismatch { found: device, expected: Device::cuda(0) };
        assert_eq!(cudarc_0_19::context(device).map(drop), Err(wanted), "{device}");
    }
}

#[test]
fn a_tensor_of_another_producer_has_no_stream_and_no_slice() {
    let tensor = far();
    assert!(cudarc_0_19::stream(&tensor).is_none());
    let tensor = tensor.into_as::<CudaSlice<i32>>().expect_err("not made of a slice");
    let tensor = tensor.into_as::<CudaSlice<u8>>().expect_err("nor of bytes");
    assert_eq!(tensor.shape(), [2]);
    let tensor = Tensor::from(vec![1_u8, 2]).into_as::<CudaSlice<u8>>().expect_err("a vector");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2][..]));
    let shared = Tensor::from(far().into_frozen());
    assert!(cudarc_0_19::stream(&shared).is_none());
}

#[test]
fn slices_go_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<OwnedSlice<f32>>();
}
