//! `ArcTensor`: clones that share one header, and what only the last of them may do.
#![allow(unsafe_code, reason = "raw descriptors are what is tested")]

use std::sync::{Arc, Barrier};
use std::thread;

use dlbridge::{
    Access, DType, Device, Error, Flags, Iter, Parts, ReadCell, Tensor, TensorMut, TensorRef, View,
    ViewMut,
};
use dlbridge_testing::Foreign;

use crate::common::{
    SIX, delete, delete_legacy, import, import_legacy, owned_and_imported, take_back, values,
};

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
                        assert_eq!(clone.view::<f32>().expect("floats").get([1, 2]), Some(5.0));
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
fn every_ndim_is_exported_while_it_is_shared() {
    for ndim in 0..7 {
        let shape = [&vec![1; ndim][..], &[6]].concat();
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
fn frozen_memory_of_a_legacy_capsule_stays_read_only() {
    let frozen = import_legacy(Foreign::new(&[2, 3], &SIX)).expect("legal").into_frozen();
    assert!(frozen.is_read_only() && !frozen.is_legacy_read_only());
    let inner = frozen.into_inner().expect("the only handle");
    // SAFETY: the test's own memory.
    let inner = unsafe { inner.assume_writable() };
    assert!(inner.is_read_only());
    assert_eq!(inner.into_raw_legacy(), Err(Error::LegacyReadOnly));
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
fn a_row_is_the_part_at_an_index_of_the_first_axis() {
    let whole = Tensor::from((0..24).collect::<Vec<i32>>()).reshape([2, 3, 4]).expect("as many");
    let whole = whole.into_shared();
    let empty = Tensor::zeros(DType::I32, [3, 0]).expect("no memory").into_shared();
    let layouts = [
        whole.clone(),
        whole.permute(&[2, 0, 1]).expect("its axes"),
        whole.flip(0).expect("an axis"),
        whole.reshape([24]).expect("as many"),
        whole.broadcast_to([2, 2, 3, 4]).expect("repeated"),
        empty,
    ];
    for tensor in layouts {
        let extent = tensor.shape()[0] as usize;
        for index in [0, extent - 1] {
            let row = tensor.select(0, index).expect("an index");
            // A tensor that is not counted takes the way of all parts.
            let part = Tensor::from(tensor.clone()).select(0, index).expect("an index");
            assert_eq!((row.shape(), row.strides()), (part.shape(), part.strides()));
            assert_eq!((row.data_ptr(), row.access()), (part.data_ptr(), part.access()));
            assert_eq!(row.is_read_only(), part.is_read_only());
        }
        let refused = tensor.select(0, extent).expect_err("no index").to_string();
        let part = Tensor::from(tensor.clone()).select(0, extent).expect_err("no index");
        assert_eq!(refused, part.to_string());
    }
    let scalar = whole.reshape([24]).and_then(|line| line.select(0, 0)).expect("an element");
    let part = Tensor::from(scalar.clone()).select(0, 0).expect_err("no axis").to_string();
    assert_eq!(scalar.select(0, 0).expect_err("no axis").to_string(), part);
}
