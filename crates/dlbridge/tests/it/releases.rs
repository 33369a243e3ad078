//! A foreign producer's deleter is called exactly once, on every path.
//! Memory that Rust owns is in `ownership.rs`, what the gate refuses in `validation.rs`.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::{delete, delete_legacy, import, import_legacy, take_back};
use dlbridge::{Error, Flags, Parts, Tensor, TensorSlice};
use dlbridge_testing::{Foreign, Releases};

fn foreign() -> (Foreign, Releases) {
    let foreign = Foreign::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6]);
    let releases = foreign.releases();
    (foreign, releases)
}

#[test]
fn dropping_the_tensor_calls_the_deleter_once() {
    let (producer, releases) = foreign();
    drop(import(producer));
    assert_eq!(releases.count(), 1);
    let (producer, releases) = foreign();
    drop(import_legacy(producer));
    assert_eq!(releases.count(), 1);
}

#[test]
fn dropping_it_on_another_thread_calls_the_deleter_once() {
    let (producer, releases) = foreign();
    let tensor = import(producer).expect("legal");
    thread::spawn(move || drop(tensor)).join().expect("no panic");
    assert_eq!(releases.count(), 1);
}

#[test]
fn giving_it_away_again_leaves_the_deleter_to_the_next() {
    let (producer, releases) = foreign();
    let managed = import(producer).expect("legal").into_raw();
    assert_eq!(releases.count(), 0);
    delete(managed);
    assert_eq!(releases.count(), 1);
}

#[test]
fn a_wrapped_tensor_calls_the_producers_deleter_once() {
    // null strides and an offset: it cannot be exported as it is
    let odd = || {
        let (producer, releases) = foreign();
        (producer.null_strides().byte_offset(0).flags(Flags::NONE), releases)
    };
    let (producer, releases) = odd();
    delete(import(producer).expect("legal").into_raw());
    assert_eq!(releases.count(), 1);
    let (producer, releases) = odd();
    delete_legacy(import(producer).expect("legal").into_raw_legacy().expect("writable"));
    assert_eq!(releases.count(), 1);
    let (producer, releases) = odd();
    delete(import_legacy(producer).expect("legal").into_raw());
    assert_eq!(releases.count(), 1);
    let (producer, releases) = odd();
    delete_legacy(import_legacy(producer).expect("legal").into_raw_legacy().expect("writable"));
    assert_eq!(releases.count(), 1);
}

#[test]
fn filled_strides_survive_moving_the_tensor() {
    let (producer, releases) = foreign();
    let tensor = Box::new(import(producer.null_strides()).expect("legal"));
    assert_eq!(tensor.strides(), [3, 1]);
    let moved = *tensor;
    assert_eq!(moved.strides(), [3, 1]);
    drop(moved);
    assert_eq!(releases.count(), 1);
}

#[test]
fn a_wrapped_tensor_outlives_the_strides_that_were_filled_in() {
    let (producer, releases) = foreign();
    let managed = import(producer.null_strides()).expect("legal").into_raw();
    let again = take_back(managed);
    assert_eq!((again.shape(), again.strides()), (&[2, 3][..], &[3, 1][..]));
    assert_eq!(again.view::<i32>().expect("host").to_vec(), [1, 2, 3, 4, 5, 6]);
    drop(again);
    assert_eq!(releases.count(), 1);
}

#[test]
fn a_refused_export_to_the_old_abi_releases_once() {
    let (producer, releases) = foreign();
    let tensor = import(producer.flags(Flags::READ_ONLY)).expect("legal");
    assert_eq!(tensor.into_raw_legacy(), Err(Error::LegacyReadOnly));
    assert_eq!(releases.count(), 1);
}

#[test]
fn a_tensor_without_a_deleter_is_never_released() {
    let (producer, releases) = foreign();
    drop(import(producer.without_deleter()));
    let (producer, others) = foreign();
    drop(import_legacy(producer.without_deleter()));
    assert_eq!((releases.count(), others.count()), (0, 0));
}

#[test]
fn a_tensor_without_a_deleter_is_exported_with_one() {
    let (producer, releases) = foreign();
    let tensor = import(producer.without_deleter()).expect("legal");
    assert!(!dlbridge::ffi::raw_fields(&tensor).expect("foreign").has_deleter);
    let again = take_back(tensor.into_raw());
    assert!(dlbridge::ffi::raw_fields(&again).expect("foreign").has_deleter);
    drop(again);
    assert_eq!(releases.count(), 0);
}

#[test]
fn shares_of_a_foreign_tensor_release_it_with_the_last() {
    let (producer, releases) = foreign();
    let tensor = import(producer).expect("legal").into_frozen();
    let share = Tensor::from(tensor.clone());
    let managed = Tensor::from(tensor).into_raw();
    assert!(dlbridge::ffi::is_foreign(&share));
    drop(share);
    assert_eq!(releases.count(), 0);
    delete(managed);
    assert_eq!(releases.count(), 1);
}

#[test]
fn a_foreign_tensor_has_no_owner_to_take_out() {
    let (producer, releases) = foreign();
    let tensor = import(producer).expect("legal");
    let tensor = tensor.into_owner::<Vec<i32>>().expect_err("it is not Rust's");
    assert_eq!(releases.count(), 0);
    drop(tensor);
    assert_eq!(releases.count(), 1);
}

#[test]
fn an_export_that_came_back_has_no_owner_to_take_out() {
    let tensor = take_back(Tensor::from(vec![1_i32]).into_raw());
    assert!(dlbridge::ffi::is_foreign(&tensor));
    assert!(tensor.into_owner::<Vec<i32>>().is_err());
}

#[test]
fn memory_of_rust_is_not_foreign_however_it_is_shared() {
    let tensor = Tensor::from(vec![1_i32]).into_frozen();
    assert!(!dlbridge::ffi::is_foreign(&tensor));
    let share = Tensor::from(Tensor::from(tensor.clone()).into_shared());
    assert!(!dlbridge::ffi::is_foreign(&share));
}

#[test]
fn a_share_of_a_share_of_foreign_memory_is_foreign() {
    let (producer, _) = foreign();
    let tensor = import(producer).expect("legal").into_frozen();
    assert!(dlbridge::ffi::is_foreign(&Tensor::from(tensor).into_shared()));
}

#[test]
fn copies_do_not_depend_on_the_original() {
    let (producer, releases) = foreign();
    let tensor = import(producer).expect("legal");
    let copy = tensor.to_contiguous().expect("host");
    let values = tensor.view::<i32>().expect("host").to_vec();
    drop(tensor);
    assert_eq!(releases.count(), 1);
    assert_eq!(copy.as_slice::<i32>().expect("exclusive"), values);
}

/// Tells when it is dropped.
struct Telling(mpsc::Sender<()>);

impl AsRef<[u8]> for Telling {
    fn as_ref(&self) -> &[u8] {
        &[1, 2, 3]
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.0.send(()).expect("the owner below receives");
    }
}

/// Drops its tensor, and waits until the memory is released.
struct Waiting {
    slice: Option<TensorSlice<u8>>,
    end: mpsc::Receiver<()>,
    was_in_time: mpsc::Sender<bool>,
}

impl AsRef<[u8]> for Waiting {
    fn as_ref(&self) -> &[u8] {
        self.slice.as_deref().expect("until it is dropped")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.slice.take());
        let end = self.end.recv_timeout(Duration::from_secs(5));
        self.was_in_time.send(end.is_ok()).expect("the test receives");
    }
}

#[test]
fn an_owner_can_wait_for_the_end_of_a_slice_that_it_drops() {
    let (told, end) = mpsc::channel();
    let inner = Tensor::builder(Telling(told)).build_read_only::<u8>().expect("bytes");
    let slice = inner.slice(0, 1..).and_then(Tensor::into_slice).expect("two bytes");
    let (was_in_time, result) = mpsc::channel();
    let owner = Waiting { slice: Some(slice), end, was_in_time };
    let tensor = Tensor::builder(owner).build_read_only::<u8>().expect("bytes");
    // A part, whose drop releases the tensor inside it.
    drop(tensor.slice(0, ..1).expect("a byte"));
    assert_eq!(result.recv(), Ok(true));
}
