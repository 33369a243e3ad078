//! `ArcTensor`: clones that share one header, and what only the last of them may do.
#![allow(unsafe_code, reason = "raw descriptors are what is tested")]

use std::sync::{Arc, Barrier};
use std::thread;

use dlbridge::{
    Access, DType, Device, Error, Flags, Iter, Parts, ReadCell, Tensor, TensorMut, TensorRef, View,
    ViewMut,
};
use dlbridge_testing::{CountingOwner, Foreign};

use crate::common::{
    SIX, delete, delete_legacy, import, import_legacy, owned_and_imported, take_back, values,
};

#[test]
fn the_last_handle_releases_the_memory_whichever_it_is() {
    for reversed in [false, true] {
        for (tensor, releases) in owned_and_imported() {
            let first = tensor.into_shared();
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
fn threads_clone_export_and_drop() {
    for (tensor, releases) in owned_and_imported() {
        let tensor = tensor.into_shared();
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
fn each_export_has_its_own_descriptor() {
    for (tensor, releases) in owned_and_imported() {
        let tensor = tensor.into_shared();
        let managed = Tensor::from(tensor.clone()).into_raw();
        let legacy = Tensor::from(tensor.clone()).into_raw_legacy().expect("writable");
        // What a consumer may do with what it was given.
        // SAFETY: exported just now.
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
fn one_consumer_at_a_time_is_lent_the_second_descriptor_of_the_header() {
    for (tensor, releases) in owned_and_imported() {
        let tensor = tensor.into_shared();
        let export = || Tensor::from(tensor.clone()).into_raw();
        let (first, second) = (export(), export());
        assert_ne!(first, second);
        for managed in [first, second] {
            // What a consumer may do with what it was given.
            // SAFETY: exported just now.
            let fields = unsafe { &mut (*managed).dl_tensor };
            // SAFETY: of two axes.
            let shape = unsafe { std::slice::from_raw_parts_mut(fields.shape, 2) };
            // SAFETY: the same.
            let strides = unsafe { std::slice::from_raw_parts_mut(fields.strides, 2) };
            assert_eq!((&*shape, &*strides), (&[2, 3][..], &[3, 1][..]));
            shape.fill(-1);
            strides.fill(-1);
            fields.dtype.lanes = 9;
            assert_eq!((tensor.shape(), values(&tensor)), (&[2, 3][..], SIX.to_vec()));
        }
        delete(first);
        let third = export();
        assert_eq!(third, first, "lent again");
        assert_eq!(values(&take_back(third)), SIX);
        drop(tensor);
        releases.expect(0, "the second is left");
        delete(second);
        releases.expect(1, "none is left");
    }
}

#[test]
fn a_lent_descriptor_outlives_the_other_handles_and_comes_back() {
    for (tensor, releases) in owned_and_imported() {
        let tensor = tensor.into_shared();
        let managed = Tensor::from(tensor.clone()).into_raw();
        drop(tensor);
        let back = take_back(managed).into_shared();
        // Kept without the descriptor, which is lent no more, and by a header of its own.
        let again = Tensor::from(back.clone()).into_raw();
        assert_ne!(again, managed);
        drop(back);
        releases.expect(0, "exported");
        assert_eq!(values(&take_back(again)), SIX);
        releases.expect(1, "none is left");
    }
}

#[test]
fn every_rank_is_exported_while_it_is_shared() {
    for rank in 0..7 {
        let shape = [&vec![1; rank][..], &[6]].concat();
        let tensor = Tensor::from(SIX.to_vec()).reshape(&shape).expect("six elements");
        let tensor = tensor.into_shared();
        let managed = Tensor::from(tensor.clone()).into_raw();
        drop(tensor);
        let back = take_back(managed);
        assert_eq!((back.shape(), values(&back)), (&shape[..], SIX.to_vec()));
    }
}

#[test]
fn the_last_handle_is_exported_without_a_new_descriptor() {
    let tensor = Tensor::from(SIX.to_vec()).into_frozen();
    drop(tensor.clone());
    let shape = tensor.shape().as_ptr();
    let managed = Tensor::from(tensor).into_raw();
    // SAFETY: exported just now.
    assert_eq!(unsafe { (*managed).dl_tensor.shape }.cast_const(), shape);
    delete(managed);
}

#[test]
fn no_handle_is_exclusive() {
    let contiguous = Tensor::from(SIX.to_vec()).to_contiguous().expect("it fits");
    for tensor in [Tensor::from(SIX.to_vec()), contiguous] {
        let tensor = tensor.into_shared();
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
    let copy = Foreign::new(&[2, 3], &SIX).class(Access::Frozen);
    let tensor = import(copy).expect("legal").into_shared();
    assert_eq!((tensor.access(), tensor.flags()), (Access::Frozen, Flags::READ_ONLY));
    let back = take_back(Tensor::from(tensor.clone()).into_raw());
    assert_eq!((back.access(), back.flags()), (Access::Shared, Flags::READ_ONLY));
}

#[test]
fn only_the_last_handle_returns_the_owner() {
    let owner = CountingOwner::new(SIX);
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<f32>().expect("it fits").into_shared();
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
        // SAFETY: exported by its producer just now.
        let tensor = unsafe { Tensor::from_raw(managed) }.expect("legal");
        let tensor = tensor.into_shared();
        assert!(dlbridge::ffi::is_foreign(&tensor) && dlbridge::ffi::raw_fields(&tensor).is_some());
        let inner = tensor.into_inner().expect("the only handle");
        assert_eq!(inner.into_raw(), managed);
        releases.expect(0, "exported");
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
        let inner = tensor.into_shared().into_inner().expect("the only handle");
        assert_eq!((inner.shape(), inner.strides()), (&shape[..], &strides[..]));
        let tensor = inner.into_shared();
        let clone = Tensor::from(tensor.clone());
        drop(tensor);
        assert_eq!((clone.shape(), clone.strides()), (&shape[..], &strides[..]));
        drop(clone);
        releases.expect(1, "none is left");
    }
}

#[test]
fn every_clone_of_frozen_memory_gives_slices_and_none_writes() {
    let tensor = Tensor::from(SIX.to_vec()).into_frozen();
    let mut clones = [Tensor::from(tensor.clone()), Tensor::from(tensor.clone())];
    for clone in &mut clones {
        assert_eq!((clone.access(), clone.flags()), (Access::Frozen, Flags::READ_ONLY));
        assert_eq!(clone.as_slice::<f32>(), Ok(&SIX[..]));
        assert_eq!(clone.as_slice_mut::<f32>(), Err(Error::ReadOnly));
        assert!(clone.view_mut::<f32>().is_err());
        // SAFETY: refused before anything is written.
        assert!(unsafe { dlbridge::ffi::view_mut_unchecked::<f32>(clone) }.is_err());
    }
    let [first, second] = clones;
    let first = first.into_owner::<Vec<f32>>().expect_err("others read it");
    // SAFETY: it says that the producer permits writing, which has no meaning here.
    let first = unsafe { first.assume_writable() };
    assert!(first.is_read_only());
    // SAFETY: refused, since it is read-only.
    assert!(unsafe { dlbridge::ffi::into_exclusive_zeroed(second) }.is_err());
    assert_eq!(tensor.as_slice::<f32>(), Ok(&SIX[..]));
}

#[test]
fn an_export_of_frozen_memory_is_read_only_and_no_copy() {
    let copy = Foreign::new(&[2, 3], &SIX).class(Access::Exclusive);
    for tensor in [Tensor::from(SIX.to_vec()), import(copy).expect("legal")] {
        assert_eq!(tensor.access(), Access::Exclusive);
        let frozen = tensor.into_frozen();
        let managed = Tensor::from(frozen.clone()).into_raw();
        // SAFETY: exported just now.
        assert_eq!(Flags(unsafe { (*managed).flags }), Flags::READ_ONLY);
        delete(managed);
        let last = Tensor::from(frozen);
        assert_eq!(dlbridge::ffi::check_legacy(&last), Err(Error::LegacyReadOnly));
        let back = take_back(last.into_raw());
        assert_eq!((back.access(), back.flags()), (Access::Shared, Flags::READ_ONLY));
    }
}

#[test]
fn freezing_shared_memory_makes_it_read_only_but_no_slice() {
    let shared = Tensor::from(SIX.to_vec()).into_shared();
    let frozen = Tensor::from(shared.clone()).into_frozen();
    assert_eq!((frozen.access(), frozen.is_read_only()), (Access::Shared, true));
    assert_eq!(frozen.clone().as_slice::<f32>(), Err(Error::SharedMemory));
    // Other handles may write it, as before.
    assert!(!shared.is_read_only());
    // SAFETY: no other code reads the elements.
    unsafe { dlbridge::ffi::view_mut_unchecked::<f32>(&shared) }.expect("writable").fill(7.0);
    assert_eq!(values(&frozen), [7.0; 6]);
}

#[test]
fn frozen_memory_of_a_legacy_capsule_stays_read_only() {
    let frozen = import_legacy(Foreign::new(&[2, 3], &SIX)).expect("legal").into_frozen();
    assert!(frozen.is_read_only() && !frozen.is_legacy_read_only());
    let inner = frozen.into_inner().expect("the only handle");
    // SAFETY: the test's own memory.
    let inner = unsafe { inner.assume_writable() };
    assert!(inner.is_read_only());
    assert_eq!(inner.into_raw_legacy(), Err(Error::LegacyReadOnly));
}

#[test]
fn the_last_handle_stays_frozen_and_returns_its_owner() {
    let frozen = Tensor::from(SIX.to_vec()).into_frozen();
    let another = frozen.clone();
    assert!(frozen.into_inner().is_none());
    let mut last = another.into_inner().expect("the last");
    assert_eq!(last.as_slice_mut::<f32>(), Err(Error::ReadOnly));
    assert_eq!(last.into_owner::<Vec<f32>>().expect("the vector"), SIX);
}

/// A tensor that came back from C has another one inside: its class is not the outer one's.
#[test]
fn sharing_a_tensor_that_came_back_is_not_undone_by_taking_it_out() {
    let copied = || {
        let foreign = Foreign::new(&[2, 3], &SIX).class(Access::Exclusive).without_deleter();
        let tensor = take_back(import(foreign).expect("legal").into_raw());
        // SAFETY: the test's own memory.
        unsafe { dlbridge::ffi::assume_class(tensor, Access::Exclusive) }
    };
    assert_eq!(copied().access(), Access::Exclusive);
    let shared = copied().into_shared().into_inner().expect("the only handle");
    assert_eq!((shared.access(), shared.is_copied()), (Access::Shared, false));
    let frozen = copied().into_frozen().into_inner().expect("the only handle");
    assert_eq!((frozen.access(), frozen.flags()), (Access::Frozen, Flags::READ_ONLY));
}

// Tensors move between threads, are read by many, and dropped by any.
// What must not be `Send` does not compile: see `ui/`.

/// Miri is slow.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 50 };

fn send_and_sync<T: Send + Sync>() {}

#[test]
fn what_holds_or_borrows_elements_is_send_and_sync() {
    send_and_sync::<Tensor>();
    send_and_sync::<TensorRef<'_>>();
    send_and_sync::<TensorMut<'_>>();
    send_and_sync::<View<'_, f32>>();
    send_and_sync::<ViewMut<'_, f32>>();
    send_and_sync::<Iter<'_, f32>>();
    send_and_sync::<ReadCell<f32>>();
    send_and_sync::<&[ReadCell<bool>]>();
    send_and_sync::<dlbridge::Builder<Vec<f32>>>();
    send_and_sync::<(DType, Device)>();
    fn error<T: std::error::Error + Send + Sync + Clone + 'static>() {}
    error::<Error>();
}

#[test]
fn many_threads_read_one_tensor() {
    let values: Vec<u64> = (0..100).collect();
    let tensors = [
        Tensor::from(values.clone()),
        Tensor::from(values.clone()).into_shared().into(),
        Tensor::from(Arc::<[u64]>::from(values.clone())),
        import(Foreign::new(&[10, 10], &values).null_strides()).expect("legal"),
    ];
    for tensor in &tensors {
        let start = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..ROUNDS {
                        let view = tensor.view::<u64>().expect("host");
                        assert_eq!(view.iter().sum::<u64>(), 4950);
                        let cells = view.as_cells().expect("contiguous");
                        assert_eq!(cells.iter().map(ReadCell::get).max(), Some(99));
                        assert_eq!(tensor.to_contiguous().expect("host").nbytes(), 800);
                        assert_eq!(tensor.as_tensor_ref().len(), 100);
                    }
                });
            }
        });
    }
}

#[test]
fn one_view_is_split_between_threads() {
    let tensor = Tensor::from((0..100).collect::<Vec<i32>>());
    let cells = tensor.view::<i32>().expect("i32").as_cells().expect("contiguous");
    let sums: Vec<i32> = thread::scope(|scope| {
        let parts = cells
            .chunks(30)
            .map(|part| scope.spawn(move || part.iter().map(ReadCell::get).sum::<i32>()));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().map(|part| part.join().expect("no panic")).collect()
    });
    assert_eq!(sums.iter().sum::<i32>(), 4950);
    let view = tensor.view::<i32>().expect("i32");
    let iter = view.iter();
    let moved = thread::scope(|scope| scope.spawn(move || iter.sum::<i32>()).join());
    assert_eq!(moved.expect("no panic"), 4950);
}

#[test]
fn a_mutable_view_may_be_used_on_another_thread() {
    let mut tensor = Tensor::from(vec![1, 2, 3]);
    let mut view = tensor.view_mut::<i32>().expect("exclusive");
    thread::scope(|scope| scope.spawn(move || view.map_inplace(|x| x * 2)).join())
        .expect("no panic");
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[2, 4, 6][..]));
}

#[test]
fn a_tensor_is_dropped_by_whichever_thread_is_last() {
    for _ in 0..ROUNDS {
        let owner = CountingOwner::new([1_u8; 16]);
        let drops = owner.drops();
        let tensor = Tensor::builder(owner).build::<u8>().expect("it fits").into_frozen();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let share = Tensor::from(tensor.clone());
                thread::spawn(move || {
                    let again = take_back(share.into_raw());
                    assert_eq!(again.view::<u8>().expect("host").iter().count(), 16);
                })
            })
            .collect();
        drop(tensor);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(drops.count(), 1);
    }
}

#[test]
fn a_foreign_tensor_is_released_by_whichever_thread_is_last() {
    for _ in 0..ROUNDS {
        let foreign = Foreign::new(&[4], &[1, 2, 3, 4]).null_strides();
        let releases = foreign.releases();
        let tensor = Arc::new(import(foreign).expect("legal"));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let tensor = Arc::clone(&tensor);
                thread::spawn(move || {
                    assert_eq!(tensor.view::<i32>().expect("host").iter().sum::<i32>(), 10);
                })
            })
            .collect();
        drop(tensor);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!(releases.count(), 1);
    }
}

#[test]
fn a_panicking_thread_still_releases_its_tensor() {
    let foreign = Foreign::new(&[1], &[1_u8]);
    let releases = foreign.releases();
    let tensor = import(foreign).expect("legal");
    let result = thread::spawn(move || {
        let _kept = tensor;
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(result.join().is_err());
    assert_eq!(releases.count(), 1);
}
