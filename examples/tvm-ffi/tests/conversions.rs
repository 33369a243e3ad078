//! The suites that every adapter of dlbridge passes.

use std::ffi::c_void;

use dlbridge::{Access, Device, Error, Tensor};
use dlbridge_example_tvm_ffi::{from_tvm, into_tvm};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Releases};
use tvm_ffi::{CPUNDAlloc, DLDataTypeExt, DLDevice, DLDeviceType, NDAllocator, tvm_ffi_sys};
use tvm_ffi_sys::{DLDataType, DLTensor};

/// Counts how often the memory is freed.
struct Counting(Releases);

// SAFETY: memory of `CPUNDAlloc`, which any thread frees.
unsafe impl NDAllocator for Counting {
    const MIN_ALIGN: usize = CPUNDAlloc::MIN_ALIGN;

    unsafe fn alloc_data(&mut self, prototype: &DLTensor) -> *mut c_void {
        // SAFETY: the caller's duty.
        unsafe { CPUNDAlloc {}.alloc_data(prototype) }
    }

    unsafe fn free_data(&mut self, tensor: &DLTensor) {
        self.0.record();
        // SAFETY: the caller's duty.
        unsafe { CPUNDAlloc {}.free_data(tensor) }
    }
}

#[test]
fn a_tensor_of_tvm_conforms() {
    conformance::owner(|| {
        let releases = Releases::default();
        let float32 = DLDataType::try_from_str("float32").expect("a dtype");
        let host = DLDevice::new(DLDeviceType::kDLCPU, 0);
        let tvm =
            tvm_ffi::Tensor::from_nd_alloc(Counting(releases.clone()), &[2, 2], float32, host);
        tvm.data_as_slice_mut::<f32>().expect("floats").copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
        let expected = Expected::new(&[2, 2], &[1.0_f32, 2.0, 3.0, 4.0]);
        let expected = expected.at(tvm.data_ptr()).access(Access::Shared).releases(releases);
        // SAFETY: the allocator frees on any thread.
        (unsafe { from_tvm(&tvm) }.expect("a legal tensor"), expected)
    });
}

#[test]
fn a_tensor_in_tvm_is_the_same_memory_or_refused() {
    let refused = conformance::taker::<f64, _>(|tensor| {
        let address = tensor.data_ptr().cast_const();
        let tvm = into_tvm(tensor)?;
        assert_eq!(tvm.data_ptr(), address);
        // TVM-FFI reads contiguous elements of the CPU alone.
        // SAFETY: the suite's deleters run on any thread.
        let back = unsafe { from_tvm(&tvm) }?;
        let values = back.view::<f64>()?.to_vec();
        if tvm.is_contiguous() && back.device() == Device::CPU {
            assert_eq!(tvm.data_as_slice::<f64>().expect("floats"), values);
        }
        Ok(values)
    });
    for refusal in refused {
        let has_null = ["0-d", "no elements"].iter().any(|it| refusal.tensor.starts_with(it));
        let is_expected = match refusal.error {
            Error::ReadOnly | Error::SharedMemory | Error::Misaligned { .. } => true,
            _ => has_null,
        };
        assert!(is_expected, "{refusal:?}");
    }
}

#[test]
fn memory_goes_there_and_back() {
    let owner = CountingOwner::new([1_i32, 2, 3]);
    let (drops, address) = (owner.drops(), owner.as_ptr());
    let tvm = into_tvm(Tensor::builder(owner).build().expect("a vector")).expect("exclusive");
    tvm.data_as_slice_mut::<i32>().expect("integers")[0] = 7;
    // SAFETY: a vector is freed on any thread.
    let back = unsafe { from_tvm(&tvm) }.expect("a legal tensor");
    drop(tvm);
    assert_eq!(
        (back.view::<i32>().unwrap().to_vec(), back.data_ptr().cast_const().cast()),
        (vec![7, 2, 3], address)
    );
    drops.expect(0, "held by the tensor that came back");
    drop(back);
    drops.expect(1, "dropped");
}
