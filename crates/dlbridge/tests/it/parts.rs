//! Parts of tensors: what they say, whom they keep alive, what is refused.
//! Random parts are those of the fuzz targets `layout` and `rights`.
#![allow(unsafe_code, reason = "memory of devices is described by pointers")]

use std::ffi::c_void;
use std::ptr;

use crate::common::{SIX, owned_and_imported, values};
use dlbridge::ffi::Place;
use dlbridge::{
    DType, DescriptorError, Device, DeviceKind, Error, ErrorKind, Flags, Parts, Tensor, TensorMut,
    TensorRef,
};

fn refused<T>(part: Result<T, Error>) -> String {
    match part {
        Ok(_) => panic!("expected an error"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_index_selects_what_one_part_after_the_other_does() -> Result<(), Error> {
    let shared = Tensor::from((0..24).collect::<Vec<i32>>()).reshape([2, 3, 4])?.into_shared();
    let back = Place::Range { first: 3, step: -2, count: 2 };
    let part = shared.index(&[Place::At(1), Place::New, Place::Whole(1), back])?;
    let same = shared.select(0, 1)?.unsqueeze(0)?.step_by(2, -2)?;
    assert_eq!((part.shape(), part.strides()), (same.shape(), same.strides()));
    assert_eq!(part.view::<i32>()?.to_vec(), same.view::<i32>()?.to_vec());
    assert_eq!(shared.index(&[])?.shape(), [2, 3, 4]);
    assert_eq!(shared.index(&[Place::Whole(9), Place::New])?.shape(), [2, 3, 4, 1]);
    let nothing = Place::Range { first: usize::MAX, step: isize::MIN, count: 0 };
    assert_eq!(shared.index(&[nothing])?.shape(), [0, 3, 4]);

    let range = |first, step, count| Place::Range { first, step, count };
    for place in [
        Place::At(2),
        Place::At(usize::MAX),
        range(2, 1, 1),
        range(0, 1, 3),
        range(0, -1, 2),
        range(1, isize::MIN, 2),
        range(0, isize::MAX, usize::MAX),
        range(usize::MAX, 1, 2),
        range(1, 0, usize::MAX),
    ] {
        let kind = shared.index(&[place]).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(ErrorKind::Index), "{place:?}");
    }
    // Two indices would reach one element.
    let found = refused(shared.index(&[range(0, 0, 2)]));
    assert_eq!(found, "expected a step other than 0 on axis 0, found 0");
    let found = refused(shared.index(&[Place::Whole(2), Place::At(0), Place::At(0)]));
    assert_eq!(found, "expected an axis below 3, found 3");
    assert!(shared.index(&[Place::New; 65]).is_err());
    Ok(())
}

#[test]
fn errors_name_the_axis_and_what_was_found() {
    let tensor = Tensor::from(SIX).reshape([2, 3]).expect("six");
    let view = tensor.view::<f32>().expect("floats");
    let short = || view.slice(1, ..0).expect("empty");
    for (found, message) in [
        (refused(view.select(2, 0)), "expected an axis below 2, found 2"),
        (refused(view.select(1, 3)), "expected an index below 3 on axis 1, found 3"),
        (refused(short().select(1, 0)), "expected an index below 0 on axis 1, found 0"),
        (
            refused(view.select(0, usize::MAX)),
            &format!("expected an index below 2 on axis 0, found {}", usize::MAX),
        ),
        (refused(view.slice(0, 1..3)), "expected a range within 0..2 on axis 0, found 1..3"),
        #[expect(clippy::reversed_empty_ranges, reason = "refused")]
        (refused(view.slice(0, 2..1)), "expected a range within 0..2 on axis 0, found 2..1"),
        (refused(view.slice(0, 3..)), "expected a range within 0..2 on axis 0, found 3..2"),
        (refused(view.step_by(0, 0)), "expected a step other than 0 on axis 0, found 0"),
        (refused(view.permute(&[0, 0])), "expected each axis below 2 once, found [0, 0]"),
        (refused(view.permute(&[0])), "expected each axis below 2 once, found [0]"),
        (
            refused(view.squeeze(1)),
            "expected extent 1 on axis 1, found 3; use select() for one index",
        ),
        (refused(view.unsqueeze(3)), "expected an axis below 3, found 3"),
        (refused(view.reshape([4])), "expected a shape with the elements of [2, 3], found [4]"),
        (
            refused(view.reshape([-1, 4])),
            "expected a shape with the elements of [2, 3], found [-1, 4]",
        ),
        (
            refused(view.transpose().reshape([6])),
            "expected strides that allow shape [6] without a copy, found [1, 3] for shape [3, 2]; \
             copy with to_contiguous() first",
        ),
        (
            refused(view.broadcast_to([2, 6])),
            "expected a shape that [2, 3] can be repeated to, found [2, 6]",
        ),
    ] {
        assert_eq!(found, message);
    }
    let negative = refused(
        tensor
            .view::<f32>()
            .expect("floats")
            .unsqueeze(0)
            .and_then(|part| part.broadcast_to([-1, 2, 3])),
    );
    assert_eq!(
        negative,
        Error::Descriptor(DescriptorError::NegativeExtent { axis: 0, extent: -1 }).to_string()
    );
}

#[test]
fn ranges_are_those_of_rust() {
    let tensor = Tensor::from(SIX);
    let view = tensor.view::<f32>().expect("floats");
    let taken = |part: Result<dlbridge::ViewPart<'_, f32>, Error>| part.expect("inside").to_vec();
    assert_eq!(taken(view.slice(0, ..)), SIX);
    assert_eq!(taken(view.slice(0, 4..)), SIX[4..]);
    assert_eq!(taken(view.slice(0, ..=4)), SIX[..=4]);
    assert_eq!(taken(view.slice(0, 6..)), [0.0_f32; 0]);
    assert!(view.slice(0, ..=usize::MAX).is_err());
    let behind = (std::ops::Bound::Excluded(usize::MAX), std::ops::Bound::Unbounded);
    assert!(view.slice(0, behind).is_err());
}

#[test]
fn a_long_chain_of_parts_is_no_chain_of_owners() {
    for (tensor, releases) in owned_and_imported() {
        let mut owned = tensor;
        for _ in 0..if cfg!(miri) { 10 } else { 100_000 } {
            owned = owned.transpose();
        }
        let mut shared = owned.into_shared();
        for _ in 0..if cfg!(miri) { 10 } else { 100_000 } {
            shared = shared.transpose();
        }
        assert_eq!(values(&shared), SIX);
        drop(shared);
        releases.expect(1, "all parts are gone");
    }
}

#[test]
fn overlapping_elements_are_not_split_to_be_written() {
    let builder = Tensor::builder(vec![0; 2]).shape([3, 2]).strides([0, 1]);
    let mut tensor = builder.build::<i32>().expect("inside");
    let split = tensor.view_mut::<i32>().expect("exclusive").split_at(0, 1);
    assert_eq!(split.err(), Some(Error::Overlapping));
    let (front, back) = tensor.as_tensor_ref().split_at(0, 1).expect("to be read");
    assert_eq!((front.shape(), back.shape()), (&[1, 2][..], &[2, 2][..]));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn the_ends_of_huge_layouts_are_reached() {
    let last = isize::MAX as usize - 1;
    let tensor = Tensor::builder(vec![7_u8]).shape([last as i64 + 1]).strides([0]);
    let tensor = tensor.build::<u8>().expect("one element, repeated");
    let view = tensor.view::<u8>().expect("bytes");
    assert_eq!(view.select(0, last).expect("the last").to_vec(), [7]);
    assert!(view.select(0, last + 1).is_err());
    assert_eq!(view.slice(0, last..).expect("the last").to_vec(), [7]);
    for step in [isize::MIN, isize::MAX] {
        assert_eq!(view.step_by(0, step).expect("a step").to_vec(), [7]);
    }
    let halves = view.reshape([2, -1]);
    assert!(halves.is_err(), "the count is odd");
    let wide = view.unsqueeze(0).expect("an axis").broadcast_to([2, last as i64 + 1]);
    assert_eq!(wide.err(), Some(DescriptorError::SizeOverflow { what: "element count" }.into()));
    let pair = Tensor::from([1_u64]).broadcast_to([i64::MAX / 8]).expect("as many bytes as fit");
    assert_eq!(pair.len() as i64, i64::MAX / 8);
    let too_many = Tensor::from([1_u64]).broadcast_to([i64::MAX / 8 + 1]);
    assert_eq!(too_many.err(), Some(DescriptorError::SizeOverflow { what: "byte size" }.into()));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn strides_that_mean_nothing_overflow_nothing() {
    for stride in [i64::MIN, i64::MAX, -1] {
        let builder = Tensor::builder(vec![5_u8]).shape([1]).strides([stride]);
        let tensor = builder.build::<u8>().expect("one element");
        let view = tensor.view::<u8>().expect("bytes");
        for part in [
            view.flip(0),
            view.step_by(0, isize::MIN),
            view.slice(0, 1..).and_then(|_| view.slice(0, ..1)),
            view.unsqueeze(0),
            view.unsqueeze(1).and_then(|part| part.squeeze(1)),
            view.reshape([1, 1, 1]),
            view.squeeze(0).and_then(|part| part.broadcast_to([1])),
        ] {
            assert_eq!(part.expect("a part").to_vec(), [5]);
        }
        assert!(view.slice(0, 1..).expect("no element").is_empty());
        let builder = Tensor::builder(Vec::<u8>::new()).shape([4, 0]).strides([stride, stride]);
        let empty = builder.build::<u8>().expect("no elements");
        let data = empty.data_ptr();
        for part in [
            empty.as_tensor_ref().select(0, 3),
            empty.as_tensor_ref().slice(0, 4..),
            empty.as_tensor_ref().flip(0),
            empty.as_tensor_ref().step_by(0, isize::MIN),
            empty.as_tensor_ref().reshape([0, i64::MAX]),
            Ok(empty.as_tensor_ref().transpose()),
        ] {
            let part = part.expect("a part");
            assert_eq!((part.len(), part.data_ptr()), (0, data));
        }
    }
}

#[test]
fn axes_end_where_tensors_end() {
    let scalar = Tensor::scalar(3_u8);
    let view = scalar.view::<u8>().expect("a byte");
    assert!(view.select(0, 0).is_err() && view.slice(0, ..).is_err() && view.flip(0).is_err());
    assert_eq!(view.transpose().to_vec(), [3]);
    assert_eq!(view.permute(&[]).expect("no axes").to_vec(), [3]);
    assert_eq!(view.reshape(()).expect("one element").to_vec(), [3]);
    let most = view.reshape([1; 64]).expect("as many axes as there may be");
    assert_eq!((most.view().shape().len(), most.to_vec()), (64, vec![3]));
    assert_eq!(most.unsqueeze(64).err(), Some(DescriptorError::NdimOutOfRange { ndim: 65 }.into()));
    assert_eq!(
        most.broadcast_to([1; 65]).err(),
        Some(DescriptorError::NdimOutOfRange { ndim: 65 }.into())
    );
    let backwards: Vec<usize> = (0..64).rev().collect();
    let part = most.permute(&backwards).and_then(|part| part.select(63, 0)).expect("axes of 1");
    assert_eq!((part.shape().len(), part.to_vec()), (63, vec![3]));
}

#[test]
fn a_part_of_packed_elements_begins_at_a_byte() {
    let fp4 = DType::FLOAT4_E2M1FN;
    let build = || Tensor::from_bytes(fp4, [6], &[0x21, 0x43, 0x65]).expect("three bytes");
    let packed = build();
    let packed = packed.as_tensor_ref();
    assert_eq!(packed.slice(0, 1..).err(), Some(Error::SubByte { padded: false, dtype: fp4 }));
    assert_eq!(packed.flip(0).err(), Some(Error::SubByte { padded: false, dtype: fp4 }));
    assert_eq!(packed.slice(0, 2..).expect("at a byte").as_bytes(), Ok(&[0x43, 0x65][..]));
    assert_eq!(
        packed.reshape([3, 2]).and_then(|part| part.select(0, 1)).expect("at a byte").as_bytes(),
        Ok(&[0x43][..])
    );
    let owned = build().slice(0, 4..).expect("at a byte");
    assert_eq!(owned.as_bytes(), Ok(&[0x65][..]));
    let shared = build().into_shared();
    assert_eq!(shared.slice(0, 3..).err(), Some(Error::SubByte { padded: false, dtype: fp4 }));
}

#[test]
fn a_handle_without_an_address_keeps_its_offset() {
    let device = Device::new(DeviceKind::VULKAN, 0);
    let handle: *mut c_void = ptr::without_provenance_mut(0x51);
    let builder = Tensor::builder(()).dtype(DType::F32).shape([2, 3]).offset(1);
    // SAFETY: memory that no test reads.
    let tensor = unsafe { builder.build_raw(handle, device, Flags::NONE) }.expect("a handle");
    let part = tensor.as_tensor_ref().select(0, 1).and_then(|row| row.slice(0, 2..));
    let part = part.expect("inside");
    assert_eq!((part.data_ptr(), part.byte_offset()), (handle, 4 * (1 + 3 + 2)));
    let back = part.flip(0).expect("one element");
    assert_eq!((back.data_ptr(), back.byte_offset()), (handle, part.byte_offset()));
    let owned = tensor.flip(1).expect("backwards");
    assert_eq!((owned.data_ptr(), owned.byte_offset()), (handle, 4 * (1 + 2)));
    let again = owned.flip(1).expect("forwards");
    assert_eq!(again.byte_offset(), 4);
}

#[test]
fn a_borrowed_part_outlives_the_borrow_that_made_it() {
    let mut memory = SIX;
    let row = {
        let whole = TensorRef::from(&memory[..]);
        whole.reshape([2, 3]).and_then(|whole| whole.select(0, 1)).expect("a row")
    };
    assert_eq!(row.as_slice::<f32>(), Ok(&SIX[3..]));
    let (mut front, back) = TensorMut::from(&mut memory[..]).split_at(0, 2).expect("inside");
    front
        .as_slice_mut::<f32>()
        .expect("exclusive")
        .copy_from_slice(&back.as_slice::<f32>().expect("floats")[..2]);
    assert_eq!(memory, [2.0, 3.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_reshape_lists_its_errors() {
    let kind = |tensor: Tensor, shape: &[i64]| tensor.reshape(shape).unwrap_err().kind();
    let (six, none) = (|| Tensor::from([1, 2, 3, 4, 5, 6]), || Tensor::from(Vec::<u8>::new()));
    assert_eq!(kind(six(), &[4]), ErrorKind::Shape);
    assert_eq!(kind(six(), &[-2, -3]), ErrorKind::Shape);
    let columns = six().reshape([2, 3]).expect("six").transpose();
    assert_eq!(kind(columns, &[6]), ErrorKind::Layout);
    assert_eq!(kind(none(), &[0, -2]), ErrorKind::InvalidDescriptor);
    assert_eq!(kind(none(), &[0, 1 << 62, 1 << 62]), ErrorKind::InvalidDescriptor);
    assert_eq!(kind(six(), &[&[6][..], &[1; 64]].concat()), ErrorKind::InvalidDescriptor);
}
