//! Elements narrower than a byte: packed, or padded to a byte each.
//! Whole bytes are in `builder.rs` and `strides.rs`.

use crate::common::{import, take_back, take_back_legacy};
use dlbridge::{DType, Error, Flags, Tensor, TypeCode, ffi, layout};
use dlbridge_testing::Foreign;

const FP4: DType = DType::FLOAT4_E2M1FN;
const FP6: DType = DType::FLOAT6_E2M3FN;

fn bytes(tensor: Tensor) -> Vec<u8> {
    let Ok(vec) = tensor.into_owner::<Vec<u8>>() else { panic!("the owner is a vector") };
    vec
}

/// All bytes of a tensor, by way of a descriptor that says they are bytes.
fn bytes_of(tensor: &Tensor) -> Vec<u8> {
    let data = tensor.data_ptr();
    let foreign = Foreign::of_bytes(DType::U8, &[tensor.nbytes() as i64], &[]).data(data);
    import(foreign).expect("legal").view::<u8>().expect("bytes").to_vec()
}

#[test]
fn packed_elements_take_as_many_bytes_as_their_bits_fill() {
    let packed = |len, dtype| layout::nbytes(len, dtype, Flags::NONE);
    assert_eq!([0, 1, 2, 3].map(|len| packed(len, FP4)), [0, 1, 1, 2].map(Ok));
    assert_eq!([0, 1, 2, 3, 4, 5].map(|len| packed(len, FP6)), [0, 1, 2, 3, 3, 4].map(Ok));
    assert_eq!(packed(3, FP4.with_lanes(2)), Ok(3));
    assert_eq!(packed(3, FP4.with_lanes(3)), Ok(5));
    assert_eq!(packed(9, DType::new(TypeCode::UINT, 1)), Ok(2));
    let padded = |len, dtype| layout::nbytes(len, dtype, Flags::SUBBYTE_PADDED);
    assert_eq!([0, 1, 2, 3].map(|len| padded(len, FP4)), [0, 1, 2, 3].map(Ok));
    assert_eq!(padded(3, FP4.with_lanes(2)), Ok(6));
    assert_eq!(padded(3, DType::F32), Ok(12), "the flag says nothing of whole bytes");
}

#[test]
fn packed_bytes_are_exported_as_they_are() {
    let builder = Tensor::builder(vec![0x21_u8, 0x43, 0x05]).dtype(FP4).shape([5]);
    let tensor = builder.build::<u8>().expect("it fits");
    assert_eq!((tensor.len(), tensor.nbytes()), (5, 3));
    assert!(tensor.is_contiguous());
    assert_eq!(bytes(tensor), [0x21, 0x43, 0x05]);
}

#[test]
fn packed_bounds_are_counted_in_bits() {
    let build = |size: usize, dtype, shape: &[i64]| {
        Tensor::builder(vec![0_u8; size]).dtype(dtype).shape(shape).build::<u8>().map(drop)
    };
    assert_eq!(build(2, FP4, &[4]), Ok(()));
    assert_eq!(build(2, FP4, &[5]), Err(Error::OutOfBounds { low: 0, high: 3, size: 2 }));
    assert_eq!(build(3, FP6, &[2, 2]), Ok(()));
    assert_eq!(build(3, FP6, &[5]), Err(Error::OutOfBounds { low: 0, high: 4, size: 3 }));
    assert_eq!(build(0, FP4, &[0]), Ok(()));
}

#[test]
fn packed_elements_have_no_address_to_start_at() {
    let builder = || Tensor::builder(vec![0_u8; 4]).dtype(FP4);
    let wanted = Err(Error::SubByte { padded: false, dtype: FP4 });
    assert_eq!(builder().shape([2]).offset(1).build::<u8>().map(drop), wanted);
    assert_eq!(builder().shape([2]).offset(2).build::<u8>().map(drop), wanted);
    let reversed = builder().shape([2]).strides([-1]).offset(1).build::<u8>();
    assert_eq!(reversed.map(drop), wanted);
    assert_eq!(builder().build::<u8>().map(drop), wanted, "how many there are is not known");
}

#[test]
fn whole_bytes_of_narrow_lanes_are_addressed() {
    let dtype = FP4.with_lanes(2);
    let builder = Tensor::builder(vec![1_u8, 2, 3]).dtype(dtype).shape([3]).strides([-1]);
    let tensor = builder.offset(2).build::<u8>().expect("it fits");
    let copy = tensor.to_contiguous().expect("each is a byte");
    assert_eq!((copy.dtype(), bytes_of(&copy)), (dtype, vec![3, 2, 1]));
}

#[test]
fn packed_elements_without_gaps_are_copied() {
    for dtype in [FP4, FP6, FP4.with_lanes(3), DType::new(TypeCode::UINT, 1)] {
        for len in 0..12 {
            let size = layout::nbytes(len, dtype, Flags::NONE).expect("it fits");
            let owner: Vec<u8> = (1..=size as u8).collect();
            let builder = Tensor::builder(owner.clone()).dtype(dtype).shape([len as i64]);
            let copy = builder.build::<u8>().expect("it fits").to_contiguous().expect("no gaps");
            assert_eq!((copy.dtype(), copy.len()), (dtype, len));
            assert_eq!(bytes_of(&copy), owner, "{dtype} x {len}");
        }
    }
}

#[test]
fn packed_elements_with_gaps_are_not_copied() {
    // two of six bits fill two bytes, and three fill three: sizes alone do not tell
    for dtype in [FP4, FP6, DType::new(TypeCode(99), 5), DType::new(TypeCode(99), 7)] {
        for len in 2..10 {
            for stride in [0, 2, 3] {
                let places = (len - 1) * stride + 1;
                let size = layout::nbytes(places, dtype, Flags::NONE).expect("it fits");
                let builder = Tensor::builder(vec![1_u8; size]).dtype(dtype);
                let builder = builder.shape([len as i64]).strides([stride as i64]);
                let tensor = builder.build::<u8>().expect("it fits");
                let wanted = Err(Error::SubByte { padded: false, dtype });
                assert_eq!(tensor.to_contiguous().map(drop), wanted, "{dtype} x {len} by {stride}");
            }
        }
    }
}

#[test]
fn padded_elements_are_copied_padded() {
    let foreign = || {
        let foreign = Foreign::of_bytes(FP4, &[2, 3], &[1, 2, 3, 4, 5, 6]);
        foreign.flags(Flags::SUBBYTE_PADDED)
    };
    let copy = import(foreign()).expect("legal").to_contiguous().expect("no gaps");
    assert_eq!(copy.flags(), Flags::SUBBYTE_PADDED | Flags::IS_COPIED);
    assert_eq!((copy.nbytes(), bytes_of(&copy)), (6, vec![1, 2, 3, 4, 5, 6]));
    let columns = import(foreign().strides(&[1, 2])).expect("legal").to_contiguous();
    assert_eq!(bytes_of(&columns.expect("each has a byte")), [1, 3, 5, 2, 4, 6]);
    let again = take_back(copy.into_raw());
    assert_eq!(bytes_of(&again), [1, 2, 3, 4, 5, 6]);
}

#[test]
fn padded_lanes_are_copied_padded() {
    let foreign = Foreign::of_bytes(FP4.with_lanes(2), &[2], &[1, 2, 3, 4]);
    let foreign = foreign.flags(Flags::SUBBYTE_PADDED).strides(&[-1]).data_at(2);
    let copy = import(foreign).expect("legal").to_contiguous().expect("each has a byte");
    assert_eq!((copy.nbytes(), bytes_of(&copy)), (4, vec![3, 4, 1, 2]));
}

#[test]
fn zeros_may_be_packed() {
    let tensor = Tensor::zeros(FP6, [3, 3]).expect("fits");
    assert_eq!((tensor.nbytes(), bytes_of(&tensor)), (7, vec![0; 7]));
}

#[test]
fn padded_elements_cannot_be_said_in_the_old_abi() {
    let foreign = Foreign::of_bytes(FP4, &[3], &[1, 2, 3]).flags(Flags::SUBBYTE_PADDED);
    let releases = foreign.releases();
    let refused = import(foreign).expect("legal").into_raw_legacy();
    assert_eq!(refused, Err(Error::LegacyPadded { dtype: FP4 }));
    releases.expect(1, "refused");
    // of whole bytes the flag says nothing
    let foreign = Foreign::new(&[1], &[1.0_f32]).flags(Flags::SUBBYTE_PADDED);
    let managed = import(foreign).expect("legal").into_raw_legacy().expect("whole bytes");
    drop(take_back_legacy(managed));
    let packed = import(Foreign::of_bytes(FP4, &[3], &[0x21, 3])).expect("legal");
    drop(take_back_legacy(packed.into_raw_legacy().expect("packed is what it means")));
}

/// Padded 4-bit elements were read as packed ones.
#[test]
fn padded_numbers_are_not_read_as_packed_ones() {
    for dtype in DType::NAMED.iter().filter(|dtype| dtype.bits < 8) {
        for lanes in [1, 2, 3, 4, 8] {
            let dtype = dtype.with_lanes(lanes);
            let memory: Vec<u8> = (0..4 * lanes).map(|i| i as u8).collect();
            for flags in (0..8).map(Flags) {
                let padded = flags.contains(Flags::SUBBYTE_PADDED);
                let tensor = import(Foreign::of_bytes(dtype, &[4], &memory).flags(flags));
                let tensor = tensor.expect("legal");
                let bits = usize::from(dtype.bits) * usize::from(lanes) * 4;
                let size = if padded { memory.len() } else { bits.div_ceil(8) };
                assert_eq!(tensor.nbytes(), size, "{dtype} {flags}");
                let copy = tensor.to_contiguous().expect("contiguous");
                assert_eq!(copy.as_bytes().expect("exclusive"), &memory[..size], "{dtype} {flags}");
                typed(&tensor, padded);
                typed(&copy, padded);
            }
        }
    }
}

/// Code that reads elements as a Rust type gets packed ones, or an error.
fn typed(tensor: &Tensor, padded: bool) {
    #[cfg(feature = "float4-0_2")]
    {
        use float4::F4E2M1x2;
        let view = tensor.view::<F4E2M1x2>().map(|view| view.to_vec().len());
        let dtype = tensor.dtype();
        match (dtype == FP4.with_lanes(2), padded) {
            (true, true) => assert_eq!(view, Err(Error::SubByte { padded: true, dtype })),
            (true, false) => assert_eq!(view, Ok(4)),
            (false, _) => assert!(matches!(view, Err(Error::DTypeMismatch { .. }))),
        }
        let slice = tensor.as_slice::<F4E2M1x2>().map(<[_]>::len);
        assert_eq!(slice.is_ok(), view.is_ok() && tensor.access() != dlbridge::Access::Shared);
    }
    let _ = (tensor, padded);
}

/// Borrows are compared by bytes, so none may be missing: elements with padded lanes are wider than their bits,
/// and the gaps between packed ones are not where their strides say in whole bytes.
#[test]
fn a_borrow_has_every_byte_of_narrow_elements() {
    let padded = Foreign::of_bytes(FP4.with_lanes(2), &[2], &[1, 2, 3, 4]);
    let padded = import(padded.flags(Flags::SUBBYTE_PADDED)).expect("legal");
    let found = ffi::bytes(&padded).expect("elements");
    assert_eq!(found.end - found.start, padded.nbytes());
    let packed = Foreign::of_bytes(FP4, &[2, 8], &[0; 12]).strides(&[16, 1]);
    let packed = import(packed).expect("legal");
    let found = ffi::bytes(&packed).expect("elements");
    assert!(found.end - found.start >= 12);
    let gap = ffi::Bytes::of(found.start + 8, &[4], &[1], 1).expect("elements");
    assert!(found.overlaps(&gap));
}
