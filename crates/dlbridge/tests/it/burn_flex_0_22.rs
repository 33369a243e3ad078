//! `burn-flex` 0.22: tensors of Burn's backend for the CPU, both ways.

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
