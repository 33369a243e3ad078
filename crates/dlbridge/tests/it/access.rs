//! What each access class permits and refuses, and how a class comes about.
//! The elements themselves are in `strides.rs` and `elements.rs`.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use std::ops::Deref;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use dlbridge::{Access, ArcTensor, DType, Error, Flags, Parts, Tensor, TensorRef};
use dlbridge_testing::Foreign;
use parking_lot::RwLock;

use crate::common::{import, import_legacy};

const VALUES: [i32; 4] = [1, 2, 3, 4];

fn foreign(flags: Flags) -> Tensor {
    import(Foreign::new(&[4], &VALUES).flags(flags)).expect("legal")
}

/// Foreign memory that the test promises no other code reaches.
fn exclusive() -> Tensor {
    import(Foreign::new(&[4], &VALUES).class(Access::Exclusive)).expect("legal")
}

/// A tensor of each class, from Rust and from a producer.
fn of_each_class() -> Vec<(Access, Tensor)> {
    vec![
        (Access::Exclusive, Tensor::from(VALUES)),
        (Access::Exclusive, Tensor::from(VALUES.to_vec())),
        (Access::Exclusive, exclusive()),
        (Access::Frozen, Tensor::from(Arc::<[i32]>::from(VALUES))),
        (Access::Frozen, Tensor::from(&VALUES[..])),
        (Access::Frozen, Tensor::builder(VALUES).build_read_only::<i32>().expect("it fits")),
        (Access::Frozen, exclusive().into_frozen().into()),
        (Access::Shared, foreign(Flags::IS_COPIED)),
        (Access::Shared, foreign(Flags::IS_COPIED | Flags::READ_ONLY)),
        (Access::Frozen, Tensor::from(Tensor::from(VALUES).into_frozen())),
        (Access::Shared, foreign(Flags::NONE)),
        (Access::Shared, foreign(Flags::READ_ONLY)),
        (Access::Shared, import_legacy(Foreign::new(&[4], &VALUES)).expect("legal")),
        (Access::Shared, Tensor::from(VALUES).into_shared().into()),
        (Access::Shared, exclusive().into_shared().into()),
        (Access::Shared, foreign(Flags::NONE).into_frozen().into()),
    ]
}

#[test]
fn each_class_comes_about_as_documented() {
    for (i, (access, tensor)) in of_each_class().into_iter().enumerate() {
        assert_eq!(tensor.access(), access, "tensor {i}: {tensor:?}");
    }
}

#[test]
fn a_slice_is_borrowed_unless_others_may_write() {
    for (access, tensor) in of_each_class() {
        let wanted = match access {
            Access::Shared => Err(Error::SharedMemory),
            _ => Ok(&VALUES[..]),
        };
        assert_eq!(tensor.as_slice::<i32>(), wanted, "{access}");
        assert_eq!(<&[i32]>::try_from(&tensor), wanted, "{access}");
        assert_eq!(tensor.as_tensor_ref().as_slice::<i32>(), wanted, "{access}");
    }
}

#[test]
fn writing_is_for_exclusive_memory_alone() {
    for (access, mut tensor) in of_each_class() {
        let wanted = match access {
            Access::Exclusive => None,
            Access::Frozen => Some(Error::ReadOnly),
            Access::Shared => Some(Error::SharedMemory),
        };
        assert_eq!(tensor.as_slice_mut::<i32>().err(), wanted, "{access}");
        assert_eq!(tensor.view_mut::<i32>().map(drop).err(), wanted, "{access}");
        if access == Access::Exclusive {
            tensor.as_slice_mut::<i32>().expect("exclusive").reverse();
            tensor.view_mut::<i32>().expect("exclusive").map_inplace(|x| -x);
            assert_eq!(tensor.as_slice::<i32>(), Ok(&[-4, -3, -2, -1][..]));
        }
    }
}

#[test]
fn the_unchecked_forms_take_every_class_but_never_write_read_only_memory() {
    for (access, mut tensor) in of_each_class() {
        // SAFETY: nobody writes.
        let slice = unsafe { tensor.assume_frozen() }.into_as::<&[i32]>();
        assert_eq!(slice, Ok(&VALUES[..]), "{access}");
        let read_only = tensor.is_read_only();
        let wanted = read_only.then_some(Error::ReadOnly);
        // SAFETY: nobody else has the elements.
        let slice =
            unsafe { tensor.assume_exclusive() }.and_then(|tensor| tensor.into_as::<&mut [i32]>());
        assert_eq!(slice.err(), wanted, "{access}");
        // SAFETY: the same.
        let view = unsafe { dlbridge::ffi::view_mut_unchecked::<i32>(&tensor) };
        assert_eq!(view.map(drop).err(), wanted, "{access}");
    }
}

#[test]
fn the_unchecked_forms_check_everything_but_the_class() {
    let mut tensor = import(Foreign::new(&[2], &VALUES).strides(&[2])).expect("legal");
    let wanted = Error::NotContiguous { axis: 0, stride: 2, expected: 1 };
    // SAFETY: nobody writes.
    assert_eq!(unsafe { tensor.assume_frozen() }.into_as::<&[i32]>(), Err(wanted.clone()));
    // SAFETY: nobody else has the elements.
    let tensor = unsafe { tensor.assume_exclusive() };
    assert_eq!(tensor.and_then(|tensor| tensor.into_as::<&mut [i32]>()), Err(wanted));
    let mut tensor = foreign(Flags::NONE);
    let wanted = Error::DTypeMismatch { found: DType::I32, expected: DType::U32 };
    // SAFETY: the same.
    let exclusive = unsafe { tensor.assume_exclusive() };
    let slice = exclusive.and_then(|tensor| tensor.into_as::<&mut [u32]>());
    assert_eq!(slice.err(), Some(wanted.clone()));
    // SAFETY: the same.
    assert_eq!(unsafe { dlbridge::ffi::view_mut_unchecked::<u32>(&tensor) }.err(), Some(wanted));
}

#[test]
fn exclusive_device_memory_is_not_readable_either() {
    let device = "cuda:0".parse().expect("a name");
    let foreign = Foreign::new(&[4], &VALUES).device(device).class(Access::Exclusive);
    let mut tensor = import(foreign).expect("legal");
    assert_eq!(tensor.access(), Access::Exclusive);
    let wanted = Error::NotHostAccessible { device };
    assert_eq!(tensor.as_slice::<i32>(), Err(wanted.clone()));
    assert_eq!(tensor.as_slice_mut::<i32>(), Err(wanted.clone()));
    assert_eq!(tensor.view_mut::<i32>().map(drop), Err(wanted.clone()));
    assert_eq!(tensor.view::<i32>().map(drop), Err(wanted));
}

// What a handle may do to its memory: class and `READ_ONLY`, however the handle was made.

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

/// `Tensor::from_guard` made several exclusive, writable tensors of one borrow (`Arc<Weights>`
/// twice): two `&mut [i32]` to the same memory.
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

/// A refused `into_owner` of memory that was shared returned a tensor without `READ_ONLY` and of
/// the class from before.
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

/// `ffi::keep_borrowed`, safe and hidden, put exclusive memory under a lease: an `Exclusive` handle
/// beside a `Shared` one.
#[test]
fn memory_that_is_kept_for_a_binding_is_shared() {
    use dlbridge::ffi::{Kept, give, keep_borrowed};

    fn kept() -> Kept {
        Kept { number: 0, start: 0, end: |_, _| {} }
    }
    // SAFETY: no other code has the memory.
    let result = catch_unwind(|| unsafe { keep_borrowed(numbers(), kept()) });
    assert!(result.is_err(), "exclusive memory beside a handle outside of Rust");
    // SAFETY: the same.
    let tensor = unsafe { keep_borrowed(numbers().into_shared().into(), kept()) };
    // SAFETY: the same.
    let outside = unsafe { give(tensor, |_| kept()) };
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
        let matrix = numbers().reshape([1, 3]).expect("as many");
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

#[test]
fn a_refusal_names_the_call_that_helps() {
    fn message<T>(result: Result<T, Error>) -> String {
        result.err().expect("refused").to_string()
    }
    let transposed = Tensor::from(VALUES.to_vec()).reshape([2, 2]).expect("as many").transpose();
    assert_eq!(
        message(transposed.as_slice::<i32>()),
        "strides: axis 0: expected 2 for contiguous memory, found 1; use view(), or copy with \
         to_contiguous()"
    );
    let shared = Tensor::from(VALUES.to_vec()).into_shared();
    assert_eq!(
        message(shared.as_slice::<i32>()),
        "access: expected memory that does not change, found shared memory, which another language \
         may write; use view(), copy with to_contiguous(), or vouch for it with assume_frozen()"
    );
    let mut frozen = Tensor::from(Arc::<[i32]>::from(VALUES));
    assert_eq!(
        message(frozen.view_mut::<i32>()),
        "access: expected writable memory, found read-only memory; copy with to_contiguous() to write"
    );
    assert_eq!(
        message(frozen.into_raw_legacy()),
        "version: expected 1.0 or newer, which marks memory read-only, found the legacy descriptor; \
         export with into_raw(), or copy with to_contiguous()"
    );
}
