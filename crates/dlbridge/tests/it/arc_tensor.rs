//! `ArcTensor`: clones that share one header, and what only the last of them may do.
//! Tensors that share by way of an `Arc` are tested in `ownership.rs`.
#![allow(unsafe_code, reason = "raw descriptors are what is tested")]

use std::thread;

use crate::common::{delete, delete_legacy, import, take_back};
use dlbridge::testing::{CountingOwner, Foreign, Releases};
use dlbridge::{Access, ArcTensor, Error, Flags, Tensor};

const SIX: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

/// Memory of Rust and of a producer, with the count of its releases.
fn kinds() -> [(Tensor, Releases); 2] {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let owned = Tensor::builder(owner).shape(&[2, 3]).build::<f32>().expect("it fits");
    let foreign = Foreign::new(&[2, 3], &SIX);
    let releases = foreign.releases();
    [(owned, drops), (import(foreign).expect("legal"), releases)]
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.view::<f32>().expect("floats").to_vec()
}

#[test]
fn the_last_handle_releases_the_memory_whichever_it_is() {
    for reversed in [false, true] {
        for (tensor, releases) in kinds() {
            let first = ArcTensor::from(tensor);
            let mut handles = vec![Tensor::from(first.clone()), Tensor::from(first)];
            if reversed {
                handles.reverse();
            }
            for handle in handles {
                releases.expect(0, "a handle is left");
                assert_eq!(values(&handle), SIX);
            }
            releases.expect(1, "none is left");
        }
    }
}

#[test]
fn threads_clone_give_away_and_drop() {
    for (tensor, releases) in kinds() {
        let tensor = ArcTensor::from(tensor);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let tensor = tensor.clone();
                thread::spawn(move || {
                    for _ in 0..if cfg!(miri) { 4 } else { 1000 } {
                        let clone = Tensor::from(tensor.clone());
                        assert_eq!(clone.view::<f32>().expect("floats").get(&[1, 2]), Some(5.0));
                        delete(clone.into_raw());
                    }
                })
            })
            .collect();
        drop(tensor);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        releases.expect(1, "all threads are done");
    }
}

#[test]
fn what_is_given_away_has_a_descriptor_of_its_own() {
    for (tensor, releases) in kinds() {
        let tensor = ArcTensor::from(tensor);
        let managed = Tensor::from(tensor.clone()).into_raw();
        let legacy = Tensor::from(tensor.clone()).into_raw_legacy().expect("writable");
        // What a consumer may do with what it was given.
        // SAFETY: given away just now.
        unsafe { (*managed).dl_tensor.ndim = 0 };
        // SAFETY: the same.
        unsafe { (*managed).flags = u64::MAX };
        // SAFETY: the same.
        unsafe { (*legacy).dl_tensor.data = std::ptr::null_mut() };
        assert_eq!((tensor.shape(), values(&tensor)), (&[2, 3][..], SIX.to_vec()));
        delete(managed);
        assert_eq!(values(&tensor), SIX);
        drop(tensor);
        releases.expect(0, "the other is left");
        delete_legacy(legacy);
        releases.expect(1, "none is left");
    }
}

#[test]
fn the_last_handle_is_given_away_without_a_new_descriptor() {
    let tensor = ArcTensor::from(Tensor::from(SIX.to_vec()));
    drop(tensor.clone());
    let shape = tensor.shape().as_ptr();
    let managed = Tensor::from(tensor).into_raw();
    // SAFETY: given away just now.
    assert_eq!(unsafe { (*managed).dl_tensor.shape }.cast_const(), shape);
    delete(managed);
}

#[test]
fn no_handle_is_exclusive() {
    let compact = Tensor::from(SIX.to_vec()).to_compact().expect("it fits");
    for tensor in [Tensor::from(SIX.to_vec()), compact] {
        let tensor = ArcTensor::from(tensor);
        assert_eq!(tensor.access(), Access::Shared);
        assert!(!tensor.is_copied() && !tensor.is_read_only());
        let mut one = Tensor::from(tensor.clone());
        assert_eq!(one.as_slice_mut::<f32>(), Err(Error::SharedMemory));
        assert_eq!(tensor.as_slice::<f32>(), Err(Error::SharedMemory));
        // Nor is one that comes back.
        assert_eq!(take_back(one.into_raw()).access(), Access::Shared);
        // Nor the last one, which others may have been given memory by.
        let mut last = tensor.into_inner().expect("the last");
        assert_eq!(last.as_slice_mut::<f32>(), Err(Error::SharedMemory));
    }
}

#[test]
fn a_read_only_copy_is_no_longer_called_one() {
    let copy = Foreign::new(&[2, 3], &SIX).flags(Flags::IS_COPIED | Flags::READ_ONLY);
    let tensor = ArcTensor::from(import(copy).expect("legal"));
    assert_eq!((tensor.access(), tensor.flags()), (Access::Frozen, Flags::READ_ONLY));
    let back = take_back(Tensor::from(tensor.clone()).into_raw());
    assert_eq!((back.access(), back.flags()), (Access::Shared, Flags::READ_ONLY));
}

#[test]
fn an_owner_is_taken_out_by_the_last_handle_alone() {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let tensor = ArcTensor::from(Tensor::builder(owner).build::<f32>().expect("it fits"));
    let another = Tensor::from(tensor.clone());
    let another = another.into_owner::<CountingOwner<f32>>().expect_err("it is shared");
    assert!(tensor.into_inner().is_none());
    let owner = another.into_owner::<CountingOwner<f32>>().expect("the last");
    drops.expect(0, "taken out");
    drop(owner);
    drops.expect(1, "dropped");
}

#[test]
fn a_producers_tensor_comes_back_as_it_was() {
    for source in [Foreign::new(&[2, 3], &SIX), Foreign::new(&[2], &[true, false])] {
        let releases = source.releases();
        let managed = source.into_versioned();
        // SAFETY: given away by its producer just now.
        let tensor = unsafe { Tensor::from_raw(managed) }.expect("legal");
        let tensor = ArcTensor::from(tensor);
        assert!(tensor.is_foreign() && tensor.producer().is_some());
        let inner = tensor.into_inner().expect("the only handle");
        assert_eq!(inner.into_raw(), managed);
        releases.expect(0, "given away");
        delete(managed);
        releases.expect(1, "deleted");
    }
}

#[test]
fn made_strides_rank_0_and_no_elements_are_shared_as_well() {
    let odd = [
        Foreign::new(&[2, 3], &SIX).null_strides(),
        Foreign::new(&[], &[1.0_f32]).null_shape().null_strides(),
        Foreign::new::<f32>(&[0, 3], &[]).data(std::ptr::null_mut()),
    ];
    for source in odd {
        let releases = source.releases();
        let tensor = import(source).expect("legal");
        let (shape, strides) = (tensor.shape().to_vec(), tensor.strides().to_vec());
        let inner = ArcTensor::from(tensor).into_inner().expect("the only handle");
        assert_eq!((inner.shape(), inner.strides()), (&shape[..], &strides[..]));
        let tensor = ArcTensor::from(inner);
        let clone = Tensor::from(tensor.clone());
        drop(tensor);
        assert_eq!((clone.shape(), clone.strides()), (&shape[..], &strides[..]));
        drop(clone);
        releases.expect(1, "none is left");
    }
}
