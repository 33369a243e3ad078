//! `bytes` 1: bytes to tensors and back, and the bytes of tensors of any type.
//! Slices that own a tensor are in `owned_slice.rs`.

use crate::common::{import, take_back};
use bytes::{Bytes, BytesMut};
use dlbridge::{Access, DType, Error, Tensor};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

#[test]
fn bytes_conform() {
    for len in [0, 1, 1000] {
        let values: Vec<u8> = (0..len).map(|i| i as u8).collect();
        conformance::owner(|| {
            let bytes = Bytes::copy_from_slice(&values);
            let expected = Expected::new(&[len], &values).at(bytes.as_ptr()).read_only();
            (Tensor::from(bytes), expected)
        });
        conformance::owner(|| {
            let bytes = BytesMut::from(&values[..]);
            let expected = Expected::new(&[len], &values).at(bytes.as_ptr());
            (Tensor::from(bytes), expected)
        });
        conformance::owner(|| {
            let owner = CountingOwner::new(&values[..]);
            let expected = Expected::new(&[len], &values).releases(owner.drops()).read_only();
            (Tensor::from(Bytes::from_owner(owner)), expected)
        });
    }
}

#[test]
fn parts_of_bytes_are_their_own_memory() {
    let bytes = Bytes::from_static(b"some bytes");
    let tensor = Tensor::from(bytes.slice(5..));
    assert_eq!(tensor.as_slice::<u8>(), Ok(&b"bytes"[..]));
    assert_eq!(tensor.data_ptr().cast_const().cast(), bytes[5..].as_ptr());
}

#[test]
fn one_half_of_split_bytes_is_written_beside_the_other() {
    let mut left = BytesMut::from(&b"left right"[..]);
    let mut right = left.split_off(5);
    let mut tensor = Tensor::from(left);
    std::thread::scope(|scope| {
        scope.spawn(|| right.iter_mut().for_each(|byte| *byte = byte.to_ascii_uppercase()));
        tensor.as_slice_mut::<u8>().expect("exclusive").fill(b'-');
    });
    let mut left: BytesMut = tensor.into_owner().expect("it is the owner");
    left.unsplit(right);
    assert_eq!(&left[..], b"-----RIGHT");
}

#[test]
fn a_tensor_of_bytes_is_not_written_through_bytes() {
    let bytes = Bytes::from(vec![1, 2, 3]);
    let tensor = Tensor::from(bytes.clone());
    let mut copy = BytesMut::from(bytes); // a copy, since the tensor holds the same memory
    copy.fill(0);
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2, 3][..]));
    let bytes: Bytes = tensor.into_owner().expect("it is the owner");
    assert!(bytes.try_into_mut().is_ok(), "nobody else has it any more");
}

#[test]
fn bytes_of_a_copy_take_every_layout() {
    let refused = conformance::reader(|tensor| Bytes::try_from(tensor.to_contiguous()?));
    assert_eq!(refused, []);
}

#[test]
fn taking_a_tensor_conforms() {
    let refused = conformance::taker::<u8, _>(Bytes::try_from);
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    let wanted = [
        "contiguous, shared",
        "column-major",
        "every second",
        "reversed",
        "rows reversed",
        "broadcast",
        "sliding windows",
    ];
    assert_eq!(names, wanted);
}

#[test]
fn each_class_becomes_bytes_or_not() {
    let make = |class| import(Foreign::new(&[2, 3], &[1_u8, 2, 3, 4, 5, 6]).class(class));
    for class in [Access::Shared, Access::Exclusive, Access::Frozen] {
        let tensor = make(class).expect("legal");
        let (access, data) = (tensor.access(), tensor.data_ptr().cast::<u8>().cast_const());
        match (Bytes::try_from(tensor), access) {
            (Ok(bytes), Access::Exclusive | Access::Frozen) => {
                assert_eq!((bytes.as_ptr(), &bytes[..]), (data, &[1, 2, 3, 4, 5, 6][..]));
            }
            (Err(error), Access::Shared) => assert_eq!(error, Error::SharedMemory),
            (result, access) => panic!("{access}: {result:?}"),
        }
    }
}

#[test]
fn gaps_other_types_and_device_memory_are_refused() {
    let wanted = Error::DTypeMismatch { found: DType::F32, expected: DType::U8 };
    assert_eq!(Bytes::try_from(Tensor::from([1.0_f32])), Err(wanted));
    let every_second = Tensor::builder([0_u8; 6]).shape([3]).strides([2]).build::<u8>();
    let wanted = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
    assert_eq!(Bytes::try_from(every_second.expect("it fits")), Err(wanted));
    let device = "cuda:0".parse().expect("a name");
    let foreign = Foreign::new(&[2], &[1_u8, 2]).device(device).class(Access::Exclusive);
    let wanted = Error::NotHostAccessible { device };
    assert_eq!(Bytes::try_from(import(foreign).expect("legal")), Err(wanted));
}

#[test]
fn the_bytes_of_any_type_have_an_owner() -> Result<(), Error> {
    let tensor = Tensor::from(vec![1.0_f32, 2.0]);
    let data = tensor.data_ptr().cast::<u8>().cast_const();
    let bytes = Bytes::from_owner(tensor.into_bytes()?);
    assert_eq!((bytes.as_ptr(), &bytes[4..]), (data, &2.0_f32.to_ne_bytes()[..]));
    Ok(())
}

#[test]
fn bytes_of_a_tensor_release_it_once_on_another_thread() {
    let owner = CountingOwner::new([1_u8, 2, 3]);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
    let bytes = Bytes::try_from(tensor).expect("exclusive");
    let part = bytes.slice(1..);
    drop(bytes);
    drops.expect(0, "while a part is left");
    std::thread::spawn(move || drop(part)).join().expect("no panic");
    drops.expect(1, "after the last part");
    let tensor = take_back(Tensor::from(Bytes::from_static(b"x")).into_raw());
    assert_eq!(Bytes::try_from(tensor), Err(Error::SharedMemory));
}
