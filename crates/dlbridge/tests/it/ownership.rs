//! Memory that Rust owns is released exactly once, on every path.
//! Memory of foreign producers is in `releases.rs`.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use crate::common::{delete, delete_legacy};
use dlbridge::Tensor;
use dlbridge_testing::{CountingOwner, PanicOnBorrow, PanicOnDrop, Releases};

fn counted() -> (Tensor, Releases) {
    let owner = CountingOwner::new([1_i32, 2, 3]);
    let drops = owner.drops();
    (Tensor::builder(owner).build::<i32>().expect("it fits"), drops)
}

#[test]
fn a_refused_build_drops_the_owner_once() {
    let refuse = |change: fn(dlbridge::Builder<CountingOwner<u8>>) -> _| {
        let owner = CountingOwner::new([0_u8; 4]);
        let drops = owner.drops();
        let builder: dlbridge::Builder<_> = change(Tensor::builder(owner));
        assert!(builder.build::<u8>().is_err());
        assert_eq!(drops.count(), 1);
    };
    refuse(|builder| builder.shape([5])); // found with the owner in the header
    refuse(|builder| builder.shape([-1])); // found before
    refuse(|builder| builder.shape([1; 65])); // found by the header
    refuse(|builder| builder.shape([2]).strides([1, 1]));
}

#[test]
fn a_panic_in_the_owners_drop_does_not_cross_the_deleter() {
    let owner = CountingOwner::new([1_u8]).panic_on_drop();
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
    delete(tensor.into_raw());
    assert_eq!(drops.count(), 1);

    let owner = CountingOwner::new([1_u8]).panic_on_drop();
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
    delete_legacy(tensor.into_raw_legacy().expect("writable"));
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_panic_whose_payload_panics_again_does_not_cross_the_deleter() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            resume_unwind(Box::new(Bomb));
        }
    }
    struct Owner;
    impl AsRef<[u8]> for Owner {
        fn as_ref(&self) -> &[u8] {
            &[1]
        }
    }
    impl Drop for Owner {
        fn drop(&mut self) {
            resume_unwind(Box::new(Bomb));
        }
    }

    let tensor = Tensor::builder(Owner).build_read_only::<u8>().expect("it fits");
    delete(tensor.into_raw());
}

#[test]
fn a_panic_in_the_owners_drop_is_an_ordinary_panic_in_rust() {
    let owner = CountingOwner::new([1_u8]).panic_on_drop();
    let drops = owner.drops();
    let tensor = Tensor::builder(owner).build::<u8>().expect("it fits");
    let payload = catch_unwind(AssertUnwindSafe(|| drop(tensor))).expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&PanicOnDrop));
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_panic_in_the_owners_drop_while_a_build_is_refused_is_an_ordinary_panic() {
    let owner = CountingOwner::new([1_u8]).panic_on_drop();
    let drops = owner.drops();
    let build = || Tensor::builder(owner).shape([2]).build::<u8>().map(drop);
    let payload = catch_unwind(AssertUnwindSafe(build)).expect_err("it panics");
    assert_eq!(payload.downcast_ref(), Some(&PanicOnDrop));
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_panic_while_the_owner_is_borrowed_drops_it_once() {
    for shape in [&[1][..], &[]] {
        let owner = CountingOwner::new([1_u8]).panic_on_borrow();
        let drops = owner.drops();
        let build = || Tensor::builder(owner).shape(shape).build::<u8>().map(drop);
        let payload = catch_unwind(AssertUnwindSafe(build)).expect_err("it panics");
        assert_eq!(payload.downcast_ref(), Some(&PanicOnBorrow));
        assert_eq!(drops.count(), 1);
    }
    let owner = CountingOwner::new([1_u8]).panic_on_borrow();
    let drops = owner.drops();
    let build = || Tensor::builder(owner).build_read_only::<u8>().map(drop);
    assert!(catch_unwind(AssertUnwindSafe(build)).is_err());
    assert_eq!(drops.count(), 1);
}

#[test]
fn an_owner_without_size_is_dropped_once() {
    thread_local!(static DROPS: Cell<usize> = const { Cell::new(0) });
    struct Nothing;
    impl AsMut<[u8]> for Nothing {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut []
        }
    }
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPS.set(DROPS.get() + 1);
        }
    }

    let tensor = Tensor::builder(Nothing).build::<u8>().expect("nothing fits");
    assert_eq!((tensor.len(), DROPS.get()), (0, 0));
    delete(tensor.into_raw());
    assert_eq!(DROPS.get(), 1);
    let tensor = Tensor::builder(Nothing).shape([0, 9]).build::<u8>().expect("nothing fits");
    let owner = tensor.into_owner::<Nothing>().expect("it is the owner");
    assert_eq!(DROPS.get(), 1);
    drop(owner);
    assert_eq!(DROPS.get(), 2);
}

#[test]
fn an_over_aligned_owner_stays_aligned_in_the_header() {
    #[derive(Clone, Copy)]
    #[repr(align(128))]
    struct Aligned([u8; 200]);
    impl AsMut<[u8]> for Aligned {
        fn as_mut(&mut self) -> &mut [u8] {
            assert!(std::ptr::from_mut(self).is_aligned());
            &mut self.0
        }
    }

    for ndim in [0_usize, 1, 3, 64] {
        let shape = vec![1; ndim];
        let owner = Aligned([7; 200]);
        let mut tensor = Tensor::builder(owner).shape(&shape).build::<u8>().expect("it fits");
        assert_eq!(tensor.data_ptr().addr() % 128, 0);
        tensor.as_slice_mut::<u8>().expect("exclusive")[0] = 8;
        let owner = tensor.into_owner::<Aligned>().expect("it is the owner");
        assert_eq!(owner.0[..2], [8, 7]);
        let tensor = Tensor::builder(owner).shape(&shape).build::<u8>().expect("it fits");
        delete(tensor.into_raw());
    }
}

#[test]
fn elements_inside_the_owner_move_with_it_into_the_header() {
    let tensor = Tensor::from([1_u16, 2, 3]);
    let data = tensor.data_ptr();
    let boxed = Box::new(tensor);
    assert_eq!(boxed.data_ptr(), data);
    assert_eq!(boxed.as_slice::<u16>().expect("exclusive"), [1, 2, 3]);
    assert_eq!(boxed.into_owner::<[u16; 3]>().expect("it is the owner"), [1, 2, 3]);
}

#[test]
fn an_owner_may_itself_hold_tensors() {
    struct Two(Tensor, #[expect(dead_code, reason = "it is only kept")] Tensor);
    impl AsRef<[i32]> for Two {
        fn as_ref(&self) -> &[i32] {
            self.0.as_slice().expect("exclusive")
        }
    }

    let ((first, first_drops), (second, second_drops)) = (counted(), counted());
    let data = first.data_ptr();
    let tensor = Tensor::builder(Two(first, second)).build_read_only::<i32>().expect("it fits");
    assert_eq!(tensor.data_ptr(), data);
    thread::spawn(move || drop(tensor)).join().expect("no panic");
    assert_eq!((first_drops.count(), second_drops.count()), (1, 1));
}

#[test]
fn an_owner_that_is_not_sync_is_never_touched_by_readers() {
    struct NotSync(Vec<u32>, Cell<u32>);
    impl AsMut<[u32]> for NotSync {
        fn as_mut(&mut self) -> &mut [u32] {
            self.1.set(self.1.get() + 1);
            &mut self.0
        }
    }

    let owner = NotSync(vec![1; 100], Cell::new(0));
    let tensor = Tensor::builder(owner).shape([100]).build::<u32>().expect("it fits");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let view = tensor.view::<u32>().expect("its own type");
                assert_eq!(view.iter().sum::<u32>(), 100);
            });
        }
    });
    let owner = tensor.into_owner::<NotSync>().expect("it is the owner");
    assert_eq!(owner.1.get(), 1, "asked for its memory once");
}
