//! What goes in through one ABI comes out of either, evened out for real consumers.
//! Releasing is in `releases.rs`, refusing in `validation.rs`.
#![allow(unsafe_code, reason = "raw descriptors are looked at")]

use crate::common::{delete, delete_legacy, import, import_legacy, take_back, take_back_legacy};
use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned, DLTensor};
use dlbridge::{DType, Device, DeviceKind, Error, Flags, Tensor};
use dlbridge_testing::Foreign;

/// What a consumer reads of a descriptor.
#[derive(Debug, PartialEq)]
struct Seen {
    data: usize,
    device: (i32, i32),
    dtype: (u8, u8, u16),
    shape: Vec<i64>,
    strides: Vec<i64>,
    byte_offset: u64,
}

/// # Safety
///
/// A live descriptor with explicit strides.
unsafe fn see(tensor: &DLTensor) -> Seen {
    let ndim = tensor.ndim as usize;
    let list = |numbers: *const i64| -> Vec<i64> {
        // SAFETY: as many numbers as there are axes (the caller's duty).
        (0..ndim).map(|axis| unsafe { numbers.wrapping_add(axis).read() }).collect()
    };
    assert!(ndim == 0 || !tensor.strides.is_null(), "strides are explicit");
    Seen {
        data: tensor.data.addr(),
        device: (tensor.device.device_type.0, tensor.device.device_id),
        dtype: (tensor.dtype.code.0, tensor.dtype.bits, tensor.dtype.lanes),
        shape: list(tensor.shape),
        strides: list(tensor.strides),
        byte_offset: tensor.byte_offset,
    }
}

fn read(tensor: *mut DLManagedTensorVersioned) -> (Seen, u64, (u32, u32)) {
    // SAFETY: owned by the test, and not yet deleted.
    let tensor = unsafe { &*tensor };
    assert!(tensor.deleter.is_some(), "there is a deleter");
    let version = (tensor.version.major, tensor.version.minor);
    // SAFETY: the same.
    (unsafe { see(&tensor.dl_tensor) }, tensor.flags, version)
}

fn read_legacy(tensor: *mut DLManagedTensor) -> Seen {
    // SAFETY: owned by the test, and not yet deleted.
    let tensor = unsafe { &*tensor };
    assert!(tensor.deleter.is_some(), "there is a deleter");
    // SAFETY: the same.
    unsafe { see(&tensor.dl_tensor) }
}

fn plain() -> Foreign {
    Foreign::new(&[2, 3], &[1_i16, 2, 3, 4, 5, 6])
}

#[test]
fn a_descriptor_that_needs_nothing_comes_back_as_it_was() {
    let managed = plain().flags(Flags(1 << 40 | 2)).version(1, 9).into_versioned();
    let tensor = take_back(managed);
    assert_eq!(tensor.into_raw(), managed);
    delete(managed);

    let managed = plain().into_legacy();
    let tensor = take_back_legacy(managed);
    assert_eq!(tensor.into_raw_legacy(), Ok(managed));
    delete_legacy(managed);

    let managed = Foreign::new(&[], &[1_u8]).null_shape().null_strides().into_versioned();
    assert_eq!(take_back(managed).into_raw(), managed);
    delete(managed);
}

#[test]
fn a_descriptor_that_lacks_something_is_wrapped() {
    let lacking: [fn() -> Foreign; 3] = [
        || plain().null_strides(),
        || plain().byte_offset(2).strides(&[1, 1]),
        || plain().without_deleter(),
    ];
    for make in lacking {
        let managed = make().into_versioned();
        let tensor = take_back(managed);
        let (data, strides) = (tensor.data_ptr().addr(), tensor.strides().to_vec());
        let wrapped = tensor.into_raw();
        assert_ne!(wrapped, managed);
        let (seen, _, version) = read(wrapped);
        assert_eq!((seen.data, seen.strides, seen.byte_offset), (data, strides, 0));
        assert_eq!(version, (1, 3));
        delete(wrapped);

        let managed = make().into_legacy();
        let tensor = take_back_legacy(managed);
        let (data, strides) = (tensor.data_ptr().addr(), tensor.strides().to_vec());
        let wrapped = tensor.into_raw_legacy().expect("writable");
        assert_ne!(wrapped, managed);
        let seen = read_legacy(wrapped);
        assert_eq!((seen.data, seen.strides, seen.byte_offset), (data, strides, 0));
        delete_legacy(wrapped);
    }
}

#[test]
fn every_field_survives_a_change_of_abi() {
    let dtype = DType { code: dlbridge::TypeCode(77), bits: 16, lanes: 1 };
    let device = Device::new(DeviceKind::CUDA_HOST, 5);
    let make = || plain().dtype(dtype).device(device).strides(&[1, 2]);
    let wanted = |data| Seen {
        data,
        device: (3, 5),
        dtype: (77, 16, 1),
        shape: vec![2, 3],
        strides: vec![1, 2],
        byte_offset: 0,
    };

    let mut foreign = make();
    let data = foreign.memory().addr();
    let managed = import(foreign).expect("legal").into_raw_legacy().expect("writable");
    assert_eq!(read_legacy(managed), wanted(data));
    let managed = take_back_legacy(managed).into_raw();
    let read_only = Flags::READ_ONLY.0;
    assert_eq!(read(managed), (wanted(data), read_only, (1, 3)));
    delete(managed);

    let mut foreign = make();
    let data = foreign.memory().addr();
    let managed = import_legacy(foreign).expect("legal").into_raw();
    assert_eq!(read(managed), (wanted(data), read_only, (1, 3)));
    delete(managed);

    let mut foreign = make();
    let data = foreign.memory().addr();
    let managed = import_legacy(foreign).expect("legal").into_raw_legacy().expect("the same ABI");
    assert_eq!(read_legacy(managed), wanted(data));
    delete_legacy(managed);
}

/// Nothing says that such memory may be written: it is read-only, and goes out so, but for the ABI that
/// it came by.
#[test]
fn legacy_memory_is_read_only_and_exported_by_the_legacy_abi() {
    type Share = fn(Tensor) -> Tensor;
    let ways: [Share; 4] = [
        |tensor| tensor,
        |tensor| Tensor::from(tensor.into_shared()),
        |tensor| Tensor::from(tensor.into_shared().clone()),
        |tensor| tensor.into_shared().into_inner().expect("no other handle"),
    ];
    let make: [fn() -> Foreign; 2] = [plain, || plain().null_strides()];
    for (way, make) in ways.into_iter().flat_map(|way| make.map(|make| (way, make))) {
        let tensor = || way(import_legacy(make()).expect("legal"));
        assert!(tensor().is_read_only() && tensor().is_legacy_read_only());
        let shared = tensor();
        // SAFETY: refused before anything is written.
        let refused = unsafe { dlbridge::ffi::view_mut_unchecked::<f32>(&shared) };
        assert_eq!(refused.err(), Some(Error::ReadOnly));
        let managed = tensor().into_raw();
        assert_eq!(read(managed).1, Flags::READ_ONLY.0);
        delete(managed);
        delete_legacy(tensor().into_raw_legacy().expect("the same ABI"));
        // SAFETY: the test's own memory.
        let tensor = unsafe { tensor().assume_writable() };
        assert!(!tensor.is_read_only() && !tensor.is_legacy_read_only());
        let managed = tensor.into_raw();
        assert_eq!(read(managed).1, 0);
        delete(managed);
    }
}

#[test]
fn an_export_says_version_1_3_and_what_the_tensor_says() {
    let tensor = Tensor::builder(vec![0.0_f64; 6])
        .shape([2, 2])
        .strides([-3, 1])
        .offset(3)
        .build::<f64>()
        .expect("it fits");
    let data = tensor.data_ptr().addr();
    assert_eq!(dlbridge::ffi::raw_fields(&tensor), None);
    let managed = tensor.into_raw();
    let wanted = Seen {
        data,
        device: (1, 0),
        dtype: (2, 64, 1),
        shape: vec![2, 2],
        strides: vec![-3, 1],
        byte_offset: 0,
    };
    assert_eq!(read(managed), (wanted, 0, (1, 3)));
    delete(managed);
}

#[test]
fn a_consumer_may_scribble_over_a_descriptor_before_it_deletes_it() {
    let managed = Tensor::from(vec![1_u8; 100]).into_raw();
    // SAFETY: owned by the test.
    let descriptor = unsafe { &mut *managed };
    descriptor.manager_ctx = std::ptr::null_mut();
    descriptor.dl_tensor.ndim = 64;
    descriptor.dl_tensor.shape = std::ptr::null_mut();
    descriptor.version.major = 7;
    delete(managed);
}
