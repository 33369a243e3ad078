//! The error itself: kinds, messages, size. Which input is refused by which error is tested where it
//! is refused.

use dlbridge::{DType, DescriptorError, Device, Error, ErrorKind, Parts, ShapeField, Tensor};

use crate::common::{other_extent, other_length, other_rank};

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
