//! Why views of nalgebra 0.35 are borrowed of unit row strides alone: with others, its own safe
//! operations leave the elements. A failure here means that a nalgebra without the faults can be
//! had, and that `adapters/nalgebra_0_35_memory.rs` may borrow more.
#![cfg(all(feature = "nalgebra-0_35", not(miri)))]

use std::env;
use std::process::Command;

use nalgebra::{DMatrixView, DMatrixViewMut};

/// The views hold elements 0 and 2 of three; nothing but safe calls. What follows is reached all
/// the same (nalgebra's issue 1616): its count of steps is that of the memory between, 3, not 2.
#[test]
#[ignore = "leaves its memory: for the test below"]
fn adding_stays_within_a_strided_column() {
    let (mut y, x) = ([0.0; 8], [1.0; 8]);
    let from = DMatrixView::from_slice_with_strides(&x[..3], 2, 1, 2, 4);
    let mut to = DMatrixViewMut::from_slice_with_strides_mut(&mut y[..3], 2, 1, 2, 4);
    to.column_mut(0).axpy(1.0, &from.column(0), 1.0);
    assert_eq!(y, [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

/// The same of an iterator, which has gone through a column when its pointer is at the end, as far
/// on as the stride says (nalgebra's issue 1562). With a stride of 0, that is where it began.
#[test]
#[ignore = "leaves its memory: for the test below"]
fn an_iterator_repeats_what_a_stride_of_0_repeats() {
    let values = [7_u8; 4];
    let repeated = DMatrixView::from_slice_with_strides(&values[..2], 3, 2, 0, 1);
    assert_eq!(repeated.iter().count(), 6);
    assert!(
        repeated.iter().all(|value| values.as_ptr_range().contains(&std::ptr::from_ref(value)))
    );
}

/// In another process: where the standard library checks `get_unchecked`, it is aborted.
#[test]
fn nalgebra_still_leaves_the_elements_of_strided_views() {
    let program = env::current_exe().expect("a program knows where it is");
    for test in
        ["adding_stays_within_a_strided_column", "an_iterator_repeats_what_a_stride_of_0_repeats"]
    {
        let mut command = Command::new(&program);
        let done = command.args(["--exact", "--ignored", test]).output().expect("it ran before");
        assert!(!done.status.success(), "{test}: nalgebra is mended");
    }
}
