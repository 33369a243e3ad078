//! What a handle may do to its memory: class and `READ_ONLY`, however the handle was made.
//! The classes themselves are tested in `access.rs`.

use std::ops::Deref;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use dlbridge::{Access, ArcTensor, Error, Flags, Parts, Tensor, TensorRef};
use parking_lot::RwLock;

/// Lends an exclusive tensor to read, as a user's type may.
struct Weights(Tensor);

impl<'a> From<&'a Weights> for TensorRef<'a> {
    fn from(weights: &'a Weights) -> Self {
        weights.0.as_tensor_ref()
    }
}

/// Lends a part that was made of the borrow.
struct Row(Tensor);

impl<'a> From<&'a Row> for TensorRef<'a> {
    fn from(row: &'a Row) -> Self {
        row.0.as_tensor_ref().slice(0, 1..).expect("there are three")
    }
}

fn numbers() -> Tensor {
    Tensor::from(vec![1, 2, 3])
}

#[track_caller]
fn assert_only_read(mut tensor: Tensor) {
    assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Frozen, true));
    assert_eq!(tensor.as_slice_mut::<i32>(), Err(Error::ReadOnly));
    assert!(tensor.view_mut::<i32>().is_err() && tensor.as_bytes_mut().is_err());
    assert!(tensor.as_slice::<i32>().is_ok() && !tensor.is_copied());
    assert!(tensor.into_raw_legacy().is_err(), "the legacy ABI has no flag");
}

#[test]
fn tensors_of_one_borrow_are_only_read() {
    let weights = Arc::new(Weights(numbers()));
    assert_only_read(Tensor::from_guard(weights.clone()));
    assert_only_read(Tensor::from_guard(weights));
    let lock = Arc::new(RwLock::new(Weights(numbers())));
    let guards = [lock.read_arc(), lock.read_arc()];
    guards.into_iter().map(Tensor::from_guard).for_each(assert_only_read);
    static WEIGHTS: LazyLock<Weights> = LazyLock::new(|| Weights(numbers()));
    assert_only_read(Tensor::from_guard(&*WEIGHTS));
    assert_only_read(Tensor::from_guard(Arc::new(Row(numbers()))));
    let copy = numbers().to_contiguous().expect("memory");
    assert!(copy.is_copied());
    assert_only_read(Tensor::from_guard(Arc::new(Weights(copy))));
}

#[test]
fn a_borrow_reports_the_rights_that_it_gives() {
    let copy = numbers().to_contiguous().expect("memory");
    let borrowed = copy.as_tensor_ref();
    assert_eq!((borrowed.access(), borrowed.flags()), (Access::Frozen, Flags::READ_ONLY));
    let part = borrowed.flip(0).expect("one axis");
    assert_eq!((part.access(), part.flags()), (Access::Frozen, Flags::READ_ONLY));
    let shared = numbers().into_shared();
    assert_eq!(shared.as_tensor_ref().access(), Access::Shared);
    assert!(shared.as_tensor_ref().is_read_only());
}

#[test]
fn a_refused_owner_leaves_the_rights_as_they_were() {
    fn refused(tensor: Tensor) -> Tensor {
        tensor.into_owner::<String>().expect_err("its owner is a vector")
    }
    let facts = |tensor: &Tensor| (tensor.access(), tensor.flags(), tensor.is_legacy_read_only());
    let leased = || Tensor::from(numbers().into_shared());
    let tensors: [fn(Tensor) -> Tensor; 5] = [
        |tensor| tensor,
        |tensor| tensor.into_frozen().into(),
        |tensor| tensor.into_shared().into(),
        |tensor| Parts::flip(tensor, 0).expect("one axis"),
        |tensor| tensor.into_frozen().slice(0, 1..).expect("there are three").into(),
    ];
    for (at, made) in tensors.into_iter().enumerate() {
        let tensor = made(leased());
        let before = facts(&tensor);
        let mut tensor = refused(tensor);
        assert_eq!(facts(&tensor), before, "{at}");
        tensor = refused(tensor);
        assert_eq!(facts(&tensor), before, "{at}, again");
        assert_eq!(facts(&refused(Tensor::from(tensor.into_shared()))), before, "{at}, shared");
    }
    let shared: ArcTensor = Tensor::from(leased().into_frozen()).into_shared();
    let first = Tensor::from(shared.clone());
    assert!(refused(first).is_read_only() && shared.is_read_only());
}

#[test]
fn memory_that_is_kept_for_a_binding_is_shared() {
    use dlbridge::ffi::{Kept, give, keep_borrowed};

    fn kept() -> Kept {
        Kept { number: 0, start: 0, end: |_, _| {} }
    }
    let result = catch_unwind(|| keep_borrowed(numbers(), kept()));
    assert!(result.is_err(), "exclusive memory beside a handle outside of Rust");
    let tensor = keep_borrowed(numbers().into_shared().into(), kept());
    let outside = give(tensor, |_| kept());
    assert_eq!(outside.access(), Access::Shared);
}

/// Lends another of its tensors each time, as a safe implementation of `Deref` may.
struct Fickle([Weights; 3], AtomicUsize);

impl Deref for Fickle {
    type Target = Weights;

    fn deref(&self) -> &Weights {
        &self.0[self.1.fetch_add(1, Ordering::Relaxed) % 3]
    }
}

#[test]
fn a_guard_that_lends_another_array_each_time_is_described_as_it_was_borrowed() {
    let fickle = |first| {
        let matrix = numbers().reshape(&[1, 3]).expect("as many");
        let longer = Tensor::from(vec![4, 5, 6, 7]);
        Fickle([numbers(), longer, matrix].map(Weights), AtomicUsize::new(first))
    };
    // Three numbers, then four of one axis.
    let tensor = Tensor::from_guard(fickle(0));
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[4, 5, 6, 7][..]));
    assert_only_read(tensor);
    // Room for one axis, then two axes, and the other way round: the guard is dropped.
    for first in [1, 2] {
        let made = catch_unwind(|| Tensor::from_guard(fickle(first)));
        assert!(made.is_err());
    }
}
