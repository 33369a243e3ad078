//! Tensors move between threads, are read by many, and dropped by any.
//! What must not be `Send` does not compile: see `ui/`.

use std::sync::{Arc, Barrier};
use std::thread;

use crate::common::{import, take_back};
use dlbridge::{DType, Device, Error, Iter, ReadCell, Tensor, TensorMut, TensorRef, View, ViewMut};
use dlbridge_testing::{CountingOwner, Foreign};

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
