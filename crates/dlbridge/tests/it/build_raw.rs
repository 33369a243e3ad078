//! Exports of memory that only the caller knows: of devices, or without a Rust slice.
//! Memory that is borrowed from an owner is in `builder.rs`.
#![allow(unsafe_code, reason = "building from a pointer is unsafe by nature")]

use std::ffi::c_void;
use std::ptr;

use crate::common::{delete, import, other_rank, take_back};
use dlbridge::{Access, Builder, DType, DescriptorError, Device, DeviceKind, Error, Flags, Tensor};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

fn address(at: usize) -> *mut c_void {
    ptr::without_provenance_mut(at)
}

fn build<O: Send + 'static>(
    builder: Builder<O>,
    data: *mut c_void,
    device: Device,
    flags: Flags,
) -> Result<Tensor, Error> {
    // SAFETY: each test describes the owner's memory, or memory that nobody reads.
    unsafe { builder.build_raw(data, device, flags) }
}

fn on_gpu(shape: &[i64]) -> Builder<CountingOwner<u8>> {
    Tensor::builder(CountingOwner::new([0_u8; 0])).dtype(DType::F32).shape(shape)
}

#[test]
fn device_memory_conforms() {
    for device in [Device::cuda(1), Device::new(DeviceKind::ROCM, 0)] {
        conformance::owner(|| {
            let owner = CountingOwner::new([0_u8; 0]);
            let expected = Expected::<f32>::on(device, &[4, 8]).releases(owner.drops());
            let expected = expected.at(address(0x7000));
            let builder = Tensor::builder(owner).dtype(DType::F32).shape(&[4, 8]);
            let tensor = build(builder, address(0x7000), device, Flags::NONE);
            (tensor.expect("legal"), expected)
        });
    }
}

#[test]
fn host_memory_conforms_as_memory_that_others_may_write() {
    conformance::owner(|| {
        let mut owner: Vec<f64> = vec![1.0, 2.0, 3.0];
        let data = owner.as_mut_ptr();
        let expected = Expected::new(&[3], &[1.0_f64, 2.0, 3.0]).at(data).access(Access::Shared);
        let builder = Tensor::builder(owner).dtype(DType::F64).shape(&[3]);
        (build(builder, data.cast(), Device::CPU, Flags::NONE).expect("legal"), expected)
    });
}

#[test]
fn the_owner_comes_back_out() {
    let owner = CountingOwner::new([1_u8, 2]);
    let (drops, data) = (owner.drops(), owner.as_ptr());
    let builder = Tensor::builder(owner).dtype(DType::U8).shape(&[2]);
    let tensor = build(builder, data.cast_mut().cast(), Device::CPU, Flags::NONE).expect("legal");
    let owner = tensor.into_owner::<CountingOwner<u8>>().expect("it is the owner");
    assert_eq!((owner.as_ref(), drops.count()), (&[1, 2][..], 0));
}

#[test]
fn shape_and_dtype_must_have_been_chosen() {
    let raw = |builder: Builder<Vec<u8>>| build(builder, address(64), Device::cuda(0), Flags::NONE);
    let no_dtype = raw(Tensor::builder(vec![]).shape(&[1]));
    assert_eq!(no_dtype.map(drop), Err(Error::NotChosen { what: "dtype" }));
    let no_shape = raw(Tensor::builder(vec![]).dtype(DType::F32));
    assert_eq!(no_shape.map(drop), Err(Error::NotChosen { what: "shape" }));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn an_impossible_layout_is_refused_and_the_owner_dropped_once() {
    let refused = |change: fn(Builder<CountingOwner<u8>>) -> _, data, wanted: Error| {
        let owner = CountingOwner::new([0_u8; 0]);
        let drops = owner.drops();
        let builder = change(Tensor::builder(owner).dtype(DType::F32).shape(&[2]));
        assert_eq!(build(builder, data, Device::cuda(0), Flags::NONE).map(drop), Err(wanted));
        drops.expect(1, "refused");
    };
    refused(
        |builder| builder,
        ptr::null_mut(),
        Error::Descriptor(DescriptorError::NullData { len: 2 }),
    );
    let negative = Error::Descriptor(DescriptorError::NegativeExtent { axis: 0, extent: -2 });
    refused(|builder| builder.shape(&[-2]), address(64), negative);
    let overflow = |what| Error::Descriptor(DescriptorError::SizeOverflow { what });
    refused(|builder| builder.shape(&[1 << 61]), address(64), overflow("byte size"));
    refused(|builder| builder.offset(usize::MAX), address(64), overflow("byte size"));
    refused(|builder| builder.strides(&[i64::MIN]), address(64), overflow("strided span"));
    // fits in elements, not in bytes
    refused(|builder| builder.strides(&[1 << 61]), address(64), overflow("strided span"));
    let ranks = other_rank(1, 0);
    refused(|builder| builder.strides(&[]), address(64), ranks);
    refused(
        |builder| builder.shape(&[1; 65]),
        address(64),
        Error::Descriptor(DescriptorError::RankOutOfRange { ndim: 65 }),
    );
}

#[test]
fn an_offset_is_added_to_an_address_and_said_of_a_handle() {
    let gpu = build(on_gpu(&[2]).offset(3), address(0x100), Device::cuda(0), Flags::NONE);
    let gpu = gpu.expect("legal");
    assert_eq!((gpu.data_ptr(), gpu.byte_offset()), (address(0x10c), 0));
    let device = Device::new(DeviceKind::OPENCL, 0);
    let buffer = build(on_gpu(&[2]).offset(3), address(0x100), device, Flags::NONE);
    let buffer = buffer.expect("legal");
    assert_eq!((buffer.data_ptr(), buffer.byte_offset()), (address(0x100), 12));
    let managed = buffer.into_raw();
    // SAFETY: owned by the test.
    let descriptor = unsafe { (*managed).dl_tensor };
    assert_eq!((descriptor.data, descriptor.byte_offset), (address(0x100), 12));
    delete(managed);
}

#[test]
fn nothing_may_lie_anywhere() {
    for data in [ptr::null_mut(), address(1)] {
        let tensor = build(on_gpu(&[0, 4]), data, Device::cuda(0), Flags::NONE).expect("legal");
        assert_eq!((tensor.len(), tensor.data_ptr()), (0, data));
    }
}

#[test]
fn flags_are_said_but_the_class_stays_shared() {
    let tensor = build(on_gpu(&[2]), address(64), Device::cuda(0), Flags::READ_ONLY);
    let tensor = tensor.expect("legal");
    assert!(tensor.is_read_only());
    assert_eq!(tensor.access(), Access::Shared);
    assert_eq!(tensor.into_raw_legacy(), Err(Error::LegacyReadOnly));
}

#[test]
fn packed_elements_start_where_the_memory_starts() {
    let packed = |offset| {
        let builder = Tensor::builder(()).dtype(DType::FLOAT4_E2M1FN).shape(&[4]);
        builder.offset(offset)
    };
    let wanted = Error::SubByte { padded: false, dtype: DType::FLOAT4_E2M1FN };
    let refused = build(packed(1), address(64), Device::cuda(0), Flags::NONE);
    assert_eq!(refused.map(drop), Err(wanted), "half a byte is no address");
    let padded = build(packed(1), address(64), Device::cuda(0), Flags::SUBBYTE_PADDED);
    assert_eq!(padded.expect("a byte each").data_ptr(), address(65));
}

#[test]
fn a_foreign_tensor_may_be_exported_again_by_hand() {
    let foreign = Foreign::new(&[2], &[5_u8, 6]);
    let releases = foreign.releases();
    let tensor = import(foreign).expect("legal");
    let data = tensor.data_ptr();
    let builder = Tensor::builder(tensor).dtype(DType::U8).shape(&[2]);
    let again =
        take_back(build(builder, data, Device::CPU, Flags::NONE).expect("legal").into_raw());
    assert_eq!(again.view::<u8>().expect("host").to_vec(), [5, 6]);
    releases.expect(0, "still exported");
    drop(again);
    releases.expect(1, "dropped");
}
