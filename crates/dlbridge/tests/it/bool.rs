//! Truth values: any foreign byte but 0 is true, and no `&bool` is ever formed over one.
//! Other element types are in `elements.rs`.
#![allow(unsafe_code, reason = "a foreign writer is played")]

use std::sync::Arc;

use crate::common::{import, take_back};
use dlbridge::{Access, DType, Error, Tensor, TensorMut};
use dlbridge_testing::Foreign;

const ODD: [u8; 5] = [0, 1, 2, 255, 0];
const READ: [bool; 5] = [false, true, true, true, false];

fn odd() -> Foreign {
    Foreign::of_bytes(DType::BOOL, &[5], &ODD)
}

#[test]
fn any_byte_but_0_reads_as_true() {
    let tensor = import(odd()).expect("legal");
    let view = tensor.view::<bool>().expect("bool");
    assert_eq!(view.to_vec(), READ);
    assert!(view.iter().eq(READ));
    assert!((0..5).all(|i| view.get(&[i]) == Some(READ[i])));
    let mut target = [false; 5];
    view.copy_to_slice(&mut target).expect("as long");
    assert_eq!(target, READ);
    let cells = view.as_cells().expect("bytes are always aligned");
    assert!(cells.iter().map(|cell| cell.get()).eq(READ));
}

#[test]
fn strided_truth_values_are_read_the_same() {
    let tensor = import(odd().strides(&[-1]).data_at(4)).expect("legal");
    let wanted: Vec<bool> = READ.into_iter().rev().collect();
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), wanted);
    let tensor = import(odd().strides(&[0]).data_at(2)).expect("legal");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true; 5]);
}

#[test]
fn writing_leaves_bytes_that_rust_may_hold() {
    let mut tensor = import(odd().class(Access::Exclusive)).expect("legal");
    let mut view = tensor.view_mut::<bool>().expect("exclusive");
    assert_eq!(view.get(&[2]), Some(true));
    view.map_inplace(|value| value);
    let data = tensor.data_ptr();
    let managed = tensor.into_raw();
    // SAFETY: owned by the test; five bytes lie there.
    let bytes = unsafe { data.cast::<[u8; 5]>().read() };
    assert_eq!(bytes, [0, 1, 1, 1, 0]);
    drop(take_back(managed));
}

#[test]
fn a_copy_keeps_the_bytes_and_reads_the_same() {
    let copy = import(odd()).expect("legal").to_contiguous().expect("host");
    assert_eq!(copy.view::<bool>().expect("bool").to_vec(), READ);
    assert_eq!(Vec::<bool>::try_from(&copy), Ok(READ.to_vec()));
}

#[test]
fn bytes_that_are_said_to_be_truth_values_read_as_such() {
    let builder = Tensor::builder(ODD.to_vec()).dtype(DType::BOOL);
    let tensor = builder.build::<u8>().expect("it fits");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), READ);
    let wanted = Error::DTypeMismatch { found: DType::BOOL, expected: DType::U8 };
    assert_eq!(tensor.as_slice::<u8>(), Err(wanted));
}

#[test]
fn truth_values_that_rust_owns_may_be_exported_and_returned() {
    let mut tensor = Tensor::from(vec![true, false]);
    assert_eq!(tensor.dtype(), DType::BOOL);
    tensor.view_mut::<bool>().expect("exclusive").map_inplace(|value| !value);
    assert_eq!(tensor.into_owner::<Vec<bool>>().expect("a vector"), [false, true]);
}

/// What another language may do to memory that was shared writable with it.
fn scribble(tensor: &Tensor) {
    let byte = tensor.data_ptr().cast::<u8>();
    // SAFETY: one byte of memory that may be written, which no code reads.
    unsafe { byte.write(2) };
}

#[test]
fn truth_values_that_others_may_have_written_are_not_returned() {
    let tensor = Tensor::from(vec![true, false]).into_shared();
    let share = Tensor::from(tensor.clone());
    scribble(&share);
    drop(share);
    let tensor = tensor.into_inner().expect("the share is gone");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true, false]);
    // a `Vec<bool>` with a 2 in it would be undefined behaviour
    let tensor = tensor.into_owner::<Vec<bool>>().expect_err("its bytes are not known");
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [true, false]);
}

#[test]
fn truth_values_are_not_written_as_bytes() {
    let mut values = [true, false];
    let wanted = Error::DTypeMismatch { found: DType::BOOL, expected: DType::U8 };
    assert_eq!(TensorMut::from(&mut values[..]).as_bytes_mut(), Err(wanted.clone()));
    // a 2 in this vector would be undefined behaviour
    assert_eq!(Tensor::from(vec![true]).as_bytes_mut(), Err(wanted));
}

#[test]
fn numbers_that_others_may_have_written_are_returned() {
    let tensor = Tensor::from(vec![7_u8, 8]).into_shared();
    scribble(&tensor);
    let tensor = tensor.into_inner().expect("no other handle");
    assert_eq!(tensor.into_owner::<Vec<u8>>().expect("a vector"), [2, 8]);
}

#[test]
fn truth_values_of_an_immutable_owner_are_returned() {
    let owner: Arc<[bool]> = Arc::from([true, false]);
    let tensor = Tensor::from(Tensor::from(owner).into_shared());
    assert_eq!(tensor.into_owner::<Arc<[bool]>>().expect("that is it")[..], [true, false]);
}

#[test]
fn truth_values_are_borrowed_to_c_functions() {
    let mut values = [true, false];
    let mut tensor = TensorMut::from(&mut values[..]);
    tensor.view_mut::<bool>().expect("exclusive").fill(true);
    tensor.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends.
        let dtype = unsafe { (*descriptor).dtype };
        assert_eq!((dtype.code.0, dtype.bits, dtype.lanes), (6, 8, 1));
    });
    assert_eq!(values, [true, true]);
}
