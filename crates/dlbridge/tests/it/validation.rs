//! What validation rejects: the exact error, and who releases the tensor then.
//! What it must accept is in `odd_but_legal.rs`.
#![allow(unsafe_code, reason = "raw descriptors are unsafe by nature")]

use std::ffi::c_void;
use std::ptr;

use dlbridge::sys::{DLManagedTensor, DLManagedTensorVersioned};
use dlbridge::{
    DType, DescriptorError, Device, DeviceKind, Error, ErrorKind, Flags, MAX_RANK, Parts,
    ShapeField, Tensor, TensorRef, TypeCode,
};
use dlbridge_testing::Foreign;

use crate::common::{
    delete, delete_legacy, import, import_legacy, other_extent, other_length, other_rank,
};

fn pair() -> Foreign {
    Foreign::new(&[2], &[1.0_f32, 2.0])
}

fn address(at: usize) -> *mut c_void {
    ptr::without_provenance_mut(at)
}

/// Every way in must refuse with the same error, releasing what it was given and nothing else.
#[track_caller]
fn refused(make: impl Fn() -> Foreign, wanted: &Error) {
    refused_by_1_x(&make, wanted);

    let foreign = make();
    let releases = foreign.releases();
    assert_eq!(import_legacy(foreign).map(drop), Err(wanted.clone()), "legacy");
    releases.expect(1, "from_raw");

    let foreign = make();
    let releases = foreign.releases();
    let managed = foreign.into_legacy();
    // SAFETY: the descriptor is refused before memory is read.
    let error = unsafe { Tensor::from_raw(managed) }.expect_err("refused above");
    assert_eq!(error, *wanted, "legacy, kept");
    releases.expect(0, "still the caller's");
    delete_legacy(managed);

    make().with_raw(|descriptor| {
        // SAFETY: the same.
        let result = unsafe { TensorRef::from_raw(descriptor) };
        assert_eq!(result.map(drop), Err(wanted.clone()), "borrowed");
    });
}

/// The same, for what only a descriptor of DLPack 1.x can say.
#[track_caller]
fn refused_by_1_x(make: impl Fn() -> Foreign, wanted: &Error) {
    let foreign = make();
    let releases = foreign.releases();
    assert_eq!(import(foreign).map(drop), Err(wanted.clone()), "versioned");
    releases.expect(1, "from_raw");

    let foreign = make();
    let releases = foreign.releases();
    let managed = foreign.into_versioned();
    // SAFETY: the descriptor is refused before memory is read.
    let error = unsafe { Tensor::from_raw(managed) }.expect_err("refused above");
    assert_eq!(error, *wanted, "versioned, kept");
    releases.expect(0, "still the caller's");
    delete(managed);
}

#[test]
fn a_null_pointer_is_no_tensor() {
    let null_tensor = Err(Error::Descriptor(DescriptorError::NullTensor));
    let null = ptr::null_mut::<DLManagedTensorVersioned>;
    // SAFETY: null is allowed.
    assert_eq!(unsafe { Tensor::from_raw(null()) }.map(drop), null_tensor);
    let legacy = ptr::null_mut::<DLManagedTensor>;
    // SAFETY: the same.
    assert_eq!(unsafe { Tensor::from_raw(legacy()) }.map(drop), null_tensor);
    // SAFETY: the same.
    let borrowed = unsafe { TensorRef::from_raw(ptr::null()) };
    assert_eq!(borrowed.map(drop), null_tensor);
}

#[test]
fn another_major_version_is_refused_before_its_body_is_read() {
    for (major, minor) in [(0, 8), (2, 0), (u32::MAX, u32::MAX)] {
        // everything after the deleter would be refused too, with another error
        let garbage = || pair().version(major, minor).ndim(-1).dtype(DType::F32.with_lanes(0));
        refused_by_1_x(garbage, &DescriptorError::UnsupportedVersion { major, minor }.into());
    }
}

#[test]
fn a_refused_tensor_without_a_deleter_is_only_refused() {
    let foreign = pair().without_deleter().ndim(-1);
    let releases = foreign.releases();
    assert_eq!(import(foreign).map(drop), Err(DescriptorError::RankOutOfRange { ndim: -1 }.into()));
    let foreign = pair().without_deleter().ndim(-1);
    assert_eq!(
        import_legacy(foreign).map(drop),
        Err(DescriptorError::RankOutOfRange { ndim: -1 }.into())
    );
    releases.expect(0, "there is nothing to call");
}

#[test]
fn a_rank_that_is_negative_or_too_high_is_refused() {
    for ndim in [-1, i32::MIN, MAX_RANK as i32 + 1, i32::MAX] {
        refused(|| pair().ndim(ndim), &DescriptorError::RankOutOfRange { ndim }.into());
    }
}

#[test]
fn a_null_shape_is_refused_where_there_are_axes() {
    refused(|| pair().null_shape(), &DescriptorError::NullShape { ndim: 1 }.into());
    refused(
        || pair().null_shape().null_strides().ndim(64),
        &DescriptorError::NullShape { ndim: 64 }.into(),
    );
}

#[test]
fn a_negative_extent_is_refused_even_beside_an_empty_axis() {
    let of = |shape: &'static [i64]| move || Foreign::new(shape, &[0_u8; 4]);
    refused(of(&[-1]), &DescriptorError::NegativeExtent { axis: 0, extent: -1 }.into());
    refused(of(&[2, -3]), &DescriptorError::NegativeExtent { axis: 1, extent: -3 }.into());
    refused(
        of(&[0, i64::MIN]),
        &DescriptorError::NegativeExtent { axis: 1, extent: i64::MIN }.into(),
    );
    let no_strides = || of(&[i64::MIN, i64::MIN])().null_strides();
    refused(no_strides, &DescriptorError::NegativeExtent { axis: 0, extent: i64::MIN }.into());
}

#[test]
fn a_count_of_elements_that_overflows_is_refused() {
    let wanted = Error::from(DescriptorError::SizeOverflow { what: "element count" });
    let of = |shape: &'static [i64]| move || Foreign::new(shape, &[0_u8; 4]);
    refused(of(&[i64::MAX, 2]), &wanted);
    refused(of(&[1 << 32, 1 << 32]), &wanted);
    refused(of(&[i64::MAX, i64::MAX, i64::MAX]), &wanted);
    refused(|| of(&[i64::MAX, 3])().null_strides(), &wanted);
    // broadcast: one byte of memory, too many elements
    refused(|| of(&[1 << 62, 4])().strides(&[0, 0]), &wanted);
    // an empty axis is no excuse: without it the rest would overflow
    refused(of(&[0, i64::MAX, i64::MAX]), &wanted);
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn a_size_in_bytes_that_overflows_is_refused() {
    let wanted = Error::from(DescriptorError::SizeOverflow { what: "byte size" });
    let of = |dtype: DType| move || Foreign::of_bytes(dtype, &[1 << 61], &[0; 16]).strides(&[0]);
    refused(of(DType::F32), &wanted);
    refused(of(DType::COMPLEX128), &wanted);
    refused(of(DType::U8.with_lanes(u16::MAX)), &wanted);
    let packed = DType::FLOAT4_E2M1FN.with_lanes(9);
    refused(of(packed), &wanted);
    let padded = || of(DType::FLOAT4_E2M1FN.with_lanes(8))().flags(Flags::SUBBYTE_PADDED);
    refused_by_1_x(padded, &wanted);
}

#[test]
fn a_strided_span_that_overflows_is_refused() {
    let wanted = Error::from(DescriptorError::SizeOverflow { what: "strided span" });
    let of = |shape: &'static [i64], strides: &'static [i64]| {
        move || Foreign::new(shape, &[0_u32; 4]).strides(strides)
    };
    refused(of(&[2], &[i64::MAX]), &wanted); // in bytes
    refused(of(&[2], &[i64::MIN]), &wanted);
    refused(of(&[3], &[i64::MAX]), &wanted);
    refused(of(&[3], &[i64::MIN]), &wanted);
    refused(of(&[2, 2], &[i64::MAX, 1]), &wanted);
    refused(of(&[2, 2], &[i64::MAX, i64::MIN]), &wanted); // from end to end
    refused(of(&[2, 2], &[1 << 61, -(1 << 61)]), &wanted); // in bytes, from end to end
    refused(of(&[4, 4], &[i64::MAX, i64::MAX]), &wanted); // wraps around more than once
}

#[test]
fn zero_bits_or_lanes_are_refused() {
    let zero = |dtype: DType, reason| {
        refused(
            move || pair().dtype(dtype),
            &DescriptorError::ImpossibleDType { dtype, reason }.into(),
        );
    };
    zero(DType::new(TypeCode::FLOAT, 0), "bits is 0");
    zero(DType::F32.with_lanes(0), "lanes is 0");
    zero(DType { code: TypeCode(200), bits: 0, lanes: 0 }, "bits is 0");
}

#[test]
fn a_width_that_the_codes_name_excludes_is_refused() {
    let reason = "the code's name fixes another width";
    let codes = TypeCode::ALL.iter().filter(|code| code.fixed_bits().is_some());
    for &code in codes.clone() {
        for bits in [1, 2, 3, 4, 5, 6, 7, 8, 16, 255] {
            let dtype = DType::new(code, bits);
            if code.fixed_bits() != Some(bits) {
                refused(
                    move || pair().dtype(dtype),
                    &DescriptorError::ImpossibleDType { dtype, reason }.into(),
                );
            }
        }
    }
    assert_eq!(codes.count(), 11);
}

#[test]
fn null_data_is_refused_where_there_are_elements() {
    let null = || Foreign::new(&[2, 3], &[0_u8; 6]).data(ptr::null_mut());
    refused(null, &DescriptorError::NullData { len: 6 }.into());
    // an offset does not make it a pointer
    refused(|| null().byte_offset(64), &DescriptorError::NullData { len: 6 }.into());
    let scalar = || Foreign::new(&[], &[0_u8]).data(ptr::null_mut());
    refused(scalar, &DescriptorError::NullData { len: 1 }.into());
    refused(|| scalar().device(Device::cuda(0)), &DescriptorError::NullData { len: 1 }.into());
    let handle = Device::new(DeviceKind::OPENCL, 0);
    refused(|| null().device(handle), &DescriptorError::NullData { len: 6 }.into());
}

/// A part of PyTorch's fake tensor has its data at 0x28.
#[test]
fn an_offset_to_null_is_no_host_memory() {
    let null = Error::from(DescriptorError::NullData { len: 2 });
    for at in [1, 0x28, 0xffff] {
        refused(|| pair().data(address(at)), &null);
        refused(|| pair().data(address(at)).null_strides(), &null);
        refused(|| pair().data(address(at)).device(Device::new(DeviceKind::CUDA_HOST, 0)), &null);
    }
    refused(|| pair().data(address(0x1000)).byte_offset(0xefff), &null);
    // The first element is where memory can be, the second is not.
    let below = Error::from(DescriptorError::AddressOverflow { byte_offset: 0 });
    refused(|| pair().data(address(0x1_0000)).strides(&[-1]), &below);
    // Other devices have addresses of their own; memory without elements is nowhere.
    assert!(import(pair().data(address(0x28)).device(Device::cuda(0))).is_ok());
    assert!(import(Foreign::new(&[0], &[0_u8; 0]).data(address(0x28))).is_ok());
    assert!(import(pair().data(address(0x1_0000))).is_ok());
}

#[test]
fn a_byte_offset_that_leaves_the_address_space_is_refused() {
    let wanted = |byte_offset| Error::Descriptor(DescriptorError::AddressOverflow { byte_offset });
    for byte_offset in [u64::MAX, u64::MAX - 64, 1 << 63 | u64::MAX >> 1] {
        refused(|| pair().byte_offset(byte_offset), &wanted(byte_offset));
        refused(|| pair().byte_offset(byte_offset).device(Device::cuda(1)), &wanted(byte_offset));
    }
}

#[test]
fn elements_that_leave_the_address_space_are_refused() {
    let wanted = Error::from(DescriptorError::AddressOverflow { byte_offset: 0 });
    let last = usize::MAX & !3;
    // the second of two elements lies past the end
    refused(|| pair().data(address(last)), &wanted);
    // one that runs backwards lies before the start
    let device = Device::cuda(0);
    refused(|| pair().device(device).data(address(4)).strides(&[-2]), &wanted);
    // or at null, where nothing is, although no address overflows
    refused(|| pair().device(device).data(address(4)).strides(&[-1]), &wanted);
    // with an offset that leads there
    let wanted = Error::from(DescriptorError::AddressOverflow { byte_offset: 16 });
    refused(|| pair().data(address(usize::MAX - 20)).byte_offset(16), &wanted);
}

#[test]
fn a_descriptor_that_claims_a_device_with_addresses_is_measured_like_host_memory() {
    for kind in [DeviceKind::CUDA, DeviceKind::ROCM, DeviceKind::ONEAPI, DeviceKind::ASCEND] {
        let device = Device::new(kind, 0);
        let far = || pair().device(device).data(address(usize::MAX - 3));
        refused(far, &DescriptorError::AddressOverflow { byte_offset: 0 }.into());
    }
}

// The error itself: kinds, messages, size. Which input is refused by which error is tested where it
// is refused.

/// An error of each variant, and its kind.
fn all() -> Vec<(Error, ErrorKind)> {
    let at_most = ShapeField::ExtentAtMost { axis: 1 };
    let (found, expected) = (Device::cuda(0), Device::CPU);
    vec![
        (DescriptorError::NullTensor.into(), ErrorKind::InvalidDescriptor),
        (DescriptorError::NullData { len: 2 }.into(), ErrorKind::InvalidDescriptor),
        (DescriptorError::SizeOverflow { what: "byte size" }.into(), ErrorKind::InvalidDescriptor),
        (other_rank(2, 1), ErrorKind::Shape),
        (other_extent(0, 2, 1), ErrorKind::Shape),
        (other_length(2, 1), ErrorKind::Shape),
        (Error::ShapeMismatch { field: ShapeField::Size, expected: 8, found: 4 }, ErrorKind::Shape),
        (Error::ShapeMismatch { field: at_most, expected: 2, found: 3 }, ErrorKind::Shape),
        (Error::OutOfBounds { low: 0, high: 8, size: 4 }, ErrorKind::OutOfBounds),
        (Error::NotChosen { what: "shape" }, ErrorKind::Argument),
        (Error::UnknownName { what: "dtype", name: "f".into() }, ErrorKind::UnknownName),
        (Error::DTypeMismatch { found: DType::U8, expected: DType::F32 }, ErrorKind::DType),
        (Error::DTypeNotIn { found: DType::U8, expected: &[DType::F32] }, ErrorKind::DType),
        (Error::DeviceMismatch { found, expected }, ErrorKind::Device),
        (Error::NotHostAccessible { device: found }, ErrorKind::Device),
        (Error::SubByte { dtype: DType::FLOAT4_E2M1FN, padded: true }, ErrorKind::Layout),
        (Error::Misaligned { address: 2, align: 4 }, ErrorKind::Layout),
        (Error::NotContiguous { axis: 0, stride: 2, expected: 1 }, ErrorKind::Layout),
        (Error::StrideMismatch { axis: 0, stride: 2, expected: "1" }, ErrorKind::Layout),
        (Error::Overlapping, ErrorKind::Layout),
        (Error::SharedMemory, ErrorKind::Access),
        (Error::ReadOnly, ErrorKind::Access),
        (Error::LegacyReadOnly, ErrorKind::Unsupported),
        (Error::LegacyPadded { dtype: DType::FLOAT4_E2M1FN }, ErrorKind::Unsupported),
        (
            Error::NotConvertible { what: "dtype", found: "bool".into(), expected: "a number" },
            ErrorKind::Unsupported,
        ),
        (Error::Refused { by: "driver", reason: "no device".into() }, ErrorKind::Refused),
        (Error::OutOfMemory { size: 8 }, ErrorKind::OutOfMemory),
    ]
    .into_iter()
    .chain(parts())
    .collect()
}

/// Why there are no such parts of three elements, or of two columns of them.
fn parts() -> Vec<(Error, ErrorKind)> {
    let three = Tensor::from([1, 2, 3]);
    let (view, mut other) = (three.view::<i32>().expect("integers"), Tensor::from([1, 2]));
    let columns = Tensor::from([1; 6]).reshape(&[2, 3]).expect("six").transpose();
    let other_view = other.view::<i32>().expect("integers");
    vec![
        (view.select(0, 3).unwrap_err(), ErrorKind::Index),
        (view.select(1, 0).unwrap_err(), ErrorKind::Index),
        (view.unsqueeze(2).unwrap_err(), ErrorKind::Index),
        (view.chunks(1, 1).unwrap_err(), ErrorKind::Index),
        (view.slice(0, 2..4).unwrap_err(), ErrorKind::OutOfBounds),
        (view.step_by(0, 0).unwrap_err(), ErrorKind::Argument),
        (view.permute(&[1]).unwrap_err(), ErrorKind::Argument),
        (view.chunks(0, 0).unwrap_err(), ErrorKind::Argument),
        (view.squeeze(0).unwrap_err(), ErrorKind::Shape),
        (view.reshape(&[2]).unwrap_err(), ErrorKind::Shape),
        (view.broadcast_to(&[4]).unwrap_err(), ErrorKind::Shape),
        (view.zip(&other_view).unwrap_err(), ErrorKind::Shape),
        (columns.reshape(&[6]).unwrap_err(), ErrorKind::Layout),
        (
            other.view_mut::<i32>().and_then(|mut view| view.set(&[2], 0)).unwrap_err(),
            ErrorKind::Index,
        ),
    ]
}

#[test]
fn each_error_has_a_kind() {
    for (error, kind) in all() {
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn each_message_says_what_was_expected_and_ends_with_the_call_that_helps() {
    for (error, kind) in all() {
        let message = error.to_string();
        let says_both = message.contains("expected ") && message.contains("found ");
        // What another crate says is kept as it is; memory that is missing has no other side.
        let other = matches!(kind, ErrorKind::Refused | ErrorKind::OutOfMemory);
        assert!(says_both || other, "{message}");
        if let Some(help) = error.help() {
            assert!(message.ends_with(&format!("; {help}")), "{message}");
        }
    }
}

/// A `Result` is returned by every call: a larger error would be copied by all of them.
#[test]
fn an_error_is_at_most_eight_words_long() {
    assert!(size_of::<Error>() <= size_of::<[usize; 8]>());
    assert_eq!(size_of::<Result<Tensor, Error>>(), size_of::<Error>());
}
