//! The error itself: kinds, messages, size. Which input is refused by which error is tested where it
//! is refused.

use dlbridge::{DType, DescriptorError, Device, Error, ErrorKind, PartError, ShapeField, Tensor};

use crate::common::{other_extent, other_length, other_rank};

/// An error of each variant, and its kind.
fn all() -> Vec<(Error, ErrorKind)> {
    let at_most = ShapeField::ExtentAtMost { axis: 1 };
    let (found, expected) = (Device::cuda(0), Device::CPU);
    let shape = || Box::from([2_i64]);
    vec![
        (DescriptorError::NullTensor.into(), ErrorKind::InvalidDescriptor),
        (DescriptorError::NullData { len: 2 }.into(), ErrorKind::InvalidDescriptor),
        (DescriptorError::SizeOverflow { what: "byte size" }.into(), ErrorKind::InvalidDescriptor),
        (other_rank(2, 1), ErrorKind::Shape),
        (other_extent(0, 2, 1), ErrorKind::Shape),
        (other_length(2, 1), ErrorKind::Shape),
        (Error::ShapeMismatch { field: ShapeField::Size, expected: 8, found: 4 }, ErrorKind::Shape),
        (Error::ShapeMismatch { field: at_most, expected: 2, found: 3 }, ErrorKind::Shape),
        (Error::Part(PartError::Squeeze { axis: 0, extent: 2 }), ErrorKind::Shape),
        (Error::Part(PartError::Shapes { shape: shape(), other: shape() }), ErrorKind::Shape),
        (Error::Part(PartError::Axis { axis: 2, rank: 1 }), ErrorKind::Index),
        (Error::Part(PartError::Index { axis: 0, index: 2, extent: 2 }), ErrorKind::Index),
        (Error::Part(PartError::Element { index: [2].into(), shape: shape() }), ErrorKind::Index),
        (
            Error::Part(PartError::Range { axis: 0, start: 0, end: 3, extent: 2 }),
            ErrorKind::OutOfBounds,
        ),
        (Error::OutOfBounds { low: 0, high: 8, size: 4 }, ErrorKind::OutOfBounds),
        (Error::Part(PartError::ZeroStep { axis: 0 }), ErrorKind::Argument),
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
