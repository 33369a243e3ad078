//! Nothing that trusts a pointer, or the caller's word, is safe to call.

use dlbridge::{Device, Flags, Tensor, TensorRef};

fn main() {
    let (versioned, legacy) = (Tensor::from([1]).into_raw(), Tensor::from([1]).into_raw_legacy());
    let _ = Tensor::from_raw(versioned);
    let _ = dlbridge::ffi::release_raw(legacy.unwrap());
    let _ = TensorRef::from_raw(std::ptr::null());
    let _ = Tensor::builder(()).build_raw(std::ptr::null_mut(), Device::CPU, Flags::NONE);
    let mut tensor = Tensor::from(vec![1]);
    let _ = tensor.assume_frozen();
    let _ = tensor.assume_exclusive();
    let _ = dlbridge::ffi::view_mut_unchecked::<i32>(&tensor);
}
