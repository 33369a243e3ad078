//! A foreign producer's deleter is called exactly once, on every path.
//! Memory that Rust owns is in `ownership.rs`, what the gate refuses in `validation.rs`.

use std::sync::mpsc;
use std::time::Duration;

use crate::common::{import, take_back};
use dlbridge::{Parts, Tensor, TensorSlice};
use dlbridge_testing::{Foreign, Releases};

fn foreign() -> (Foreign, Releases) {
    let foreign = Foreign::new(&[2, 3], &[1_i32, 2, 3, 4, 5, 6]);
    let releases = foreign.releases();
    (foreign, releases)
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
