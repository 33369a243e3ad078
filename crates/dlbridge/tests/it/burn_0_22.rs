//! `burn` 0.22: bytes and tensor data, both ways; tensors of its backend for the CPU (`burn-flex`).
#![allow(unsafe_code, reason = "making bytes of Burn's by hand is unsafe by nature")]

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::thread;

use crate::common::import;
use burn_std::{
    AccessError, AccessPolicy, AllocationController, AllocationProperty, BoolStore, Bytes,
    DType as BurnType, TensorData, Writer,
};
use dlbridge::{Access, DType, Device, Error, Flags, Tensor};
use dlbridge_testing::conformance::{self, Expected};
use dlbridge_testing::{CountingOwner, Foreign};

#[test]
fn tensor_data_conform() {
    conformance::owner(|| {
        let data = TensorData::new(vec![1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let expected = Expected::new(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let expected = expected.at(data.bytes().as_ptr());
        (Tensor::try_from(data).expect("floats"), expected)
    });
    conformance::owner(|| {
        let data = TensorData::new(vec![true, false], [2]);
        let expected = Expected::new(&[2], &[true, false]).at(data.bytes().as_ptr());
        (Tensor::try_from(data).expect("truth values"), expected)
    });
    conformance::owner(|| {
        let data = TensorData::new(Vec::<i64>::new(), [3, 0]);
        (Tensor::try_from(data).expect("integers"), Expected::<i64>::new(&[3, 0], &[]))
    });
    conformance::owner(|| {
        let data = TensorData::new(vec![7_i64], Vec::<usize>::new());
        let expected = Expected::new(&[], &[7_i64]).at(data.bytes().as_ptr());
        (Tensor::try_from(data).expect("integers"), expected)
    });
}

#[test]
fn bytes_conform() {
    conformance::owner(|| {
        let bytes = Bytes::from_elems(vec![1_u8, 2, 3]);
        let expected = Expected::new(&[3], &[1_u8, 2, 3]).at(bytes.as_ptr());
        (Tensor::try_from(bytes).expect("in memory"), expected)
    });
}

#[test]
fn bytes_that_others_hold_are_read_only() {
    conformance::owner(|| {
        let bytes = Bytes::from_elems(vec![1_u8, 2, 3]).shared();
        let expected = Expected::new(&[3], &[1_u8, 2, 3]).at(bytes.as_ptr()).read_only();
        (Tensor::try_from(bytes).expect("in memory"), expected)
    });
    let mut other = Bytes::from_elems(vec![1_u8, 2, 3]).shared();
    let tensor = Tensor::try_from(other.clone()).expect("in memory");
    other[0] = 99; // Burn copies first
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2, 3][..]));
}

/// Bytes that are somewhere else until they are asked for, as those of a file or a device.
struct Elsewhere(Vec<MaybeUninit<u8>>);

impl AllocationController for Elsewhere {
    fn alloc_align(&self) -> usize {
        1
    }

    fn property(&self) -> AllocationProperty {
        AllocationProperty::Device
    }

    unsafe fn memory_mut(
        &mut self,
        policy: AccessPolicy,
    ) -> Result<&mut [MaybeUninit<u8>], AccessError> {
        if policy.copy_allowed() { Ok(&mut self.0) } else { Err(AccessError::WouldCopy) }
    }

    fn memory(&self, policy: AccessPolicy) -> Result<&[MaybeUninit<u8>], AccessError> {
        if policy.copy_allowed() { Ok(&self.0) } else { Err(AccessError::WouldCopy) }
    }
}

#[test]
fn bytes_that_are_elsewhere_are_refused() {
    let controller = Box::new(Elsewhere(vec![MaybeUninit::new(1); 4]));
    // SAFETY: four bytes, all initialised.
    let bytes = unsafe { Bytes::from_controller(controller, 4) };
    let error = Tensor::try_from(bytes).map(drop).expect_err("nothing is fetched yet");
    let wanted = "bytes: expected bytes in host memory, found bytes of a file or a device";
    assert_eq!(error.to_string(), wanted);
}

#[test]
fn bytes_come_back_out_as_they_were() {
    let bytes = Bytes::from_elems(vec![1_u8, 2]);
    let data = bytes.as_ptr();
    let mut tensor = Tensor::try_from(bytes).expect("in memory");
    tensor.as_slice_mut::<u8>().expect("exclusive")[0] = 9;
    let bytes: Bytes = tensor.into_owner().expect("it is the owner");
    assert_eq!((bytes.as_ptr(), &bytes[..]), (data, &[9, 2][..]));
    assert_eq!(bytes.try_into_vec::<u8>().expect("a vector again"), [9, 2]);
}

#[test]
fn every_type_goes_there_and_back() {
    for name in [
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "bfloat16", "float32", "float64", "bool",
    ] {
        let dtype: DType = name.parse().expect("a name");
        let tensor = Tensor::zeros(dtype, [2, 2]).expect("small");
        let address = tensor.data_ptr();
        let data = TensorData::try_from(tensor).expect(name);
        assert_eq!(data.bytes().as_ptr().addr(), address.addr(), "{name}");
        let again = Tensor::try_from(data).expect(name);
        assert_eq!((again.dtype(), again.data_ptr()), (dtype, address), "{name}");
        assert_eq!((again.shape(), again.access()), (&[2, 2][..], Access::Exclusive), "{name}");
    }
}

#[test]
fn types_without_a_counterpart_are_refused() {
    let wide = TensorData::try_from(Tensor::from(vec![1_i128])).map(drop).expect_err("128 bits");
    let types = "integers of 8 to 64 bits, floats of 16 to 64 bits, or bool";
    assert_eq!(wide.to_string(), format!("dtype: expected {types}, found int128"));
    let words = Bytes::from_elems(vec![1_u32, 0]);
    let words = TensorData::from_bytes(words, [2], BurnType::Bool(BoolStore::U32));
    let error = Tensor::try_from(words).map(drop).expect_err("truth values of 32 bits");
    assert_eq!(error.to_string(), format!("dtype: expected {types}, found Bool(U32)"));
}

#[test]
fn taking_a_tensor_conforms() {
    let refused = conformance::taker::<f32, _>(|tensor| {
        let data = TensorData::try_from(tensor)?;
        Ok(data.as_slice::<f32>().expect("its own type").to_vec())
    });
    let names: Vec<_> = refused.iter().map(|refusal| refusal.tensor).collect();
    let wanted = ["contiguous, shared", "column-major", "reversed", "broadcast", "odd address"];
    assert!(wanted.iter().all(|name| names.contains(name)), "{names:?}");
    let taken = ["contiguous", "contiguous, read-only", "0-d", "9-d", "pinned", "no elements"];
    assert!(!taken.iter().any(|name| names.contains(name)), "{names:?}");
}

#[test]
fn exclusive_memory_is_written_where_it_is() {
    let values = vec![1_u8, 2, 3];
    let address = values.as_ptr();
    let mut bytes = Bytes::try_from(Tensor::from(values)).expect("exclusive");
    assert_eq!((bytes.as_ptr(), bytes.len(), bytes.capacity()), (address, 3, 3));
    bytes.write(Writer::new().no_copy()).expect("nobody else has it")[0] = 9;
    bytes[1] = 8;
    assert_eq!((bytes.as_ptr(), &bytes[..]), (address, &[9, 8, 3][..]));
}

#[test]
fn frozen_memory_is_copied_before_it_is_written() {
    let shared: Arc<[u8]> = Arc::from([1, 2, 3]);
    let mut bytes = Bytes::try_from(Tensor::from(Arc::clone(&shared))).expect("frozen");
    assert_eq!(bytes.as_ptr(), shared.as_ptr());
    assert!(bytes.write(Writer::new().no_copy()).is_err());
    let second = bytes.clone();
    assert_eq!(second.as_ptr(), shared.as_ptr(), "sharing again is no copy");
    bytes[0] = 9;
    assert_eq!(
        (&bytes[..], &second[..], &shared[..]),
        (&[9, 2, 3][..], &[1, 2, 3][..], &[1, 2, 3][..])
    );
    drop((bytes, second));
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn burn_may_do_what_it_does_with_bytes() {
    let owner = CountingOwner::new([1_u16, 2, 3, 4]);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u16>().expect("it fits");
    let bytes = Bytes::try_from(tensor).expect("exclusive");
    assert_eq!(bytes.property(), AllocationProperty::Other);
    assert!(bytes.align() >= 2 && bytes.align() <= 16, "{}", bytes.align());
    let bytes = bytes.try_into_vec::<u16>().expect_err("the memory is no vector of Burn's");
    let copy = bytes.clone();
    assert_ne!(copy.as_ptr(), bytes.as_ptr(), "only shared bytes are cheap to clone");
    let (left, right) = bytes.split(4, burn_std::SplitPolicy::Shared).expect("in bounds");
    assert_eq!((&left[..], &right[..]), (&copy[..4], &copy[4..]));
    drops.expect(0, "two halves hold it");
    drop(left);
    thread::spawn(move || drop(right)).join().expect("no panic");
    drops.expect(1, "both are gone");
    let mut grown = Bytes::try_from(Tensor::from(vec![1_u8, 2])).expect("exclusive");
    grown.extend_from_byte_slice(&[3, 4]);
    assert_eq!(&grown[..], [1, 2, 3, 4]);
}

#[test]
fn tensor_data_become_a_vector_by_a_copy() {
    let data = TensorData::try_from(Tensor::from(vec![1.5_f64, 2.5])).expect("exclusive");
    assert_eq!(data.try_into_vec::<f64>().expect("its own type"), [1.5, 2.5]);
}

#[test]
fn bytes_that_are_no_truth_values_are_refused() {
    let odd = Foreign::of_bytes(DType::BOOL, &[3], &[0, 1, 2]).class(Access::Exclusive);
    let releases = odd.releases();
    let error = TensorData::try_from(import(odd).expect("legal")).map(drop).expect_err("a 2");
    assert_eq!(error.to_string(), "values: expected truth values, 0 or 1, found the byte 2");
    releases.expect(1, "refused");
}

#[test]
fn what_others_may_write_is_refused() {
    for flags in [Flags::NONE, Flags::READ_ONLY] {
        let foreign = Foreign::new(&[2], &[1_i32, 2]).flags(flags);
        let releases = foreign.releases();
        let tensor = import(foreign).expect("legal");
        assert_eq!(Bytes::try_from(tensor).map(drop), Err(Error::SharedMemory));
        releases.expect(1, "refused");
    }
    let far = Foreign::new(&[2], &[1_i32, 2]).device(Device::cuda(1)).class(Access::Exclusive);
    let wanted = Error::NotHostAccessible { device: Device::cuda(1) };
    assert_eq!(TensorData::try_from(import(far).expect("legal")).map(drop), Err(wanted));
}

#[cfg(feature = "burn-flex-0_22")]
mod flex {
    use std::sync::Arc;
    use std::thread;

    use burn_flex::{FlexTensor, Layout};
    use burn_std::{Bytes, DType as BurnType, Shape, TensorData};
    use dlbridge::{Access, Error, Tensor};
    use dlbridge_testing::CountingOwner;
    use dlbridge_testing::conformance::{self, Expected};

    fn counted(shape: [usize; 2]) -> FlexTensor {
        let values: Vec<i32> = (0..).take(shape[0] * shape[1]).collect();
        FlexTensor::from_data(TensorData::new(values, shape))
    }

    #[test]
    fn tensors_of_every_layout_conform() {
        conformance::owner(|| {
            let tensor = counted([2, 3]);
            let expected = Expected::new(&[2, 3], &[0, 1, 2, 3, 4, 5]).at(tensor.bytes().as_ptr());
            (Tensor::try_from(tensor).expect("integers"), expected.read_only())
        });
        conformance::owner(|| {
            let tensor = counted([2, 3]).transpose(0, 1);
            let expected = Expected::new(&[3, 2], &[0, 3, 1, 4, 2, 5]).strides(&[1, 3]);
            let expected = expected.at(tensor.bytes().as_ptr());
            (Tensor::try_from(tensor).expect("integers"), expected.read_only())
        });
        conformance::owner(|| {
            let tensor = counted([3, 4]).narrow(1, 1, 2);
            let expected = Expected::new(&[3, 2], &[1, 2, 5, 6, 9, 10]).strides(&[4, 1]);
            let expected = expected.at(tensor.bytes().as_ptr().wrapping_add(4));
            (Tensor::try_from(tensor).expect("integers"), expected.read_only())
        });
        conformance::owner(|| {
            let backwards = Layout::new(Shape::from([4]), vec![-1], 3);
            let tensor = counted([1, 4]).with_layout(backwards);
            let expected = Expected::new(&[4], &[3, 2, 1, 0]).strides(&[-1]);
            let expected = expected.at(tensor.bytes().as_ptr().wrapping_add(12));
            (Tensor::try_from(tensor).expect("integers"), expected.read_only())
        });
        conformance::owner(|| {
            let tensor = counted([3, 0]);
            (
                Tensor::try_from(tensor).expect("integers"),
                Expected::<i32>::new(&[3, 0], &[]).read_only(),
            )
        });
    }

    #[test]
    fn a_layout_that_reaches_too_far_is_refused() {
        for layout in [
            Layout::new(Shape::from([7]), vec![1], 0),
            Layout::new(Shape::from([2]), vec![1], 5),
            Layout::new(Shape::from([2]), vec![-1], 0),
            Layout::new(Shape::from([2]), vec![1], usize::MAX),
        ] {
            let tensor = counted([2, 3]).with_layout(layout);
            assert!(Tensor::try_from(tensor).is_err());
        }
    }

    #[test]
    fn another_holder_that_writes_copies_first() {
        let mut other = counted([1, 3]);
        let tensor = Tensor::try_from(other.clone()).expect("integers");
        other.storage_mut::<i32>()[0] = 99;
        assert_eq!(tensor.as_slice::<i32>(), Ok(&[0, 1, 2][..]));
        assert_eq!(tensor.access(), Access::Frozen);
    }

    #[test]
    fn a_tensor_in_burn_is_the_same_memory() {
        let values = vec![1.0_f32, 2.0];
        let address = values.as_ptr();
        let mut burn = FlexTensor::try_from(Tensor::from(values)).expect("exclusive");
        assert_eq!(burn.as_slice::<f32>().expect("floats").as_ptr(), address);
        // Burn's own way to write in place
        burn.try_storage_mut::<f32>().expect("the only holder")[0] = 9.0;
        assert_eq!(burn.as_slice::<f32>().expect("floats"), [9.0, 2.0]);
        assert_eq!(burn.storage_mut::<f32>().as_ptr(), address);
        // and without a copy on through Burn's data
        assert_eq!(burn.into_data().bytes().as_ptr().cast(), address);
    }

    #[test]
    fn frozen_memory_in_burn_is_never_written() {
        let shared: Arc<[i32]> = Arc::from([1, 2]);
        let mut burn = FlexTensor::try_from(Tensor::from(Arc::clone(&shared))).expect("frozen");
        assert_eq!(burn.bytes().as_ptr().cast(), shared.as_ptr());
        burn.storage_mut::<i32>()[0] = 9;
        assert_eq!(burn.as_slice::<i32>().expect("integers"), [9, 2]);
        assert_eq!(shared[..], [1, 2]);
    }

    #[test]
    fn the_last_clone_releases_the_tensor_once() {
        let owner = CountingOwner::new([1_i32, 2]);
        let drops = owner.drops();
        let tensor = Tensor::builder(owner).build::<i32>().expect("it fits");
        let burn = FlexTensor::try_from(tensor).expect("exclusive");
        let clone = burn.clone();
        drop(burn);
        drops.expect(0, "a clone holds it");
        thread::spawn(move || drop(clone)).join().expect("no panic");
        drops.expect(1, "nobody holds it");
    }

    #[test]
    fn taking_a_tensor_conforms() {
        let refused = conformance::taker::<i16, _>(|tensor| {
            let burn = FlexTensor::try_from(tensor)?;
            Ok(burn.as_slice::<i16>().expect("contiguous").to_vec())
        });
        assert!(refused.iter().any(|refusal| refusal.error == Error::SharedMemory));
        assert!(refused.iter().all(|refusal| refusal.tensor != "contiguous"));
    }

    #[test]
    fn misuse_is_refused() {
        let quantised = BurnType::Flex32;
        let flex = FlexTensor::new(
            Bytes::from_elems(vec![1.0_f32]),
            Layout::contiguous([1].into()),
            quantised,
        );
        assert_eq!(Tensor::try_from(flex).expect("floats").as_slice::<f32>(), Ok(&[1.0][..]));
        assert_eq!(
            FlexTensor::try_from(Tensor::from(Tensor::from(vec![1_i32]).into_shared())).map(drop),
            Err(Error::SharedMemory)
        );
    }
}
