//! Views over every kind of layout, against a brute-force model.
//! Random layouts are those of the fuzz targets `layout` and `view`.
#![allow(unsafe_code, reason = "the unchecked forms are tested too")]

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use dlbridge::layout::may_overlap;
use dlbridge::{Access, DType, Error, ErrorKind, Tensor};
use dlbridge_testing::Foreign;

use crate::common::{import, indices, offset, offsets, other_length, overlaps};

/// Layouts over a hundred elements: shape, strides, place of element `[0, 0, ...]`.
const LAYOUTS: &[(&[i64], &[i64], usize)] = &[
    (&[], &[], 42),
    (&[1], &[77], 42),
    (&[100], &[1], 0),
    (&[100], &[-1], 99),
    (&[50], &[2], 1),
    (&[34], &[-3], 99),
    (&[7], &[0], 13),
    (&[4, 5], &[5, 1], 0),
    (&[4, 5], &[1, 4], 3),
    (&[4, 5], &[-5, 1], 15),
    (&[4, 5], &[5, -1], 4),
    (&[4, 5], &[-5, -1], 19),
    (&[4, 5], &[20, 2], 10),
    (&[4, 5], &[0, 1], 10),
    (&[4, 5], &[1, 0], 10),
    (&[4, 5], &[0, 0], 10),
    (&[4, 5], &[1, 1], 10),
    (&[4, 5], &[-1, 1], 10),
    (&[4, 1, 5], &[5, 999, 1], 0),
    (&[1, 4, 1, 5, 1], &[-7, 5, 0, 1, 7], 0),
    (&[2, 3, 4], &[12, 4, 1], 0),
    (&[2, 3, 4], &[4, 8, 1], 0),
    (&[2, 3, 4], &[1, 2, 6], 0),
    (&[4, 3, 2], &[1, 4, 12], 0),
    (&[2, 3, 4], &[-12, 4, -1], 15),
    (&[2, 3, 4], &[12, 4, 2], 0),
    (&[2, 3, 4], &[24, 8, 2], 0),
    (&[2, 3, 4], &[0, 4, 1], 0),
    (&[2, 0, 4], &[5, 5, 5], 0),
    (&[0], &[-3], 0),
    (&[2, 2, 2, 2, 2, 2], &[32, 16, 8, 4, 2, 1], 0),
    (&[2, 2, 2, 2, 2, 2], &[1, 2, 4, 8, 16, 32], 0),
    (&[2, 1, 2, 1, 2, 1, 2, 1, 2], &[1, 0, 2, 0, 4, 0, 8, 0, 16], 0),
    (&[1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2], &[9, 1, 9, 2, 9, 4, 9, 8, 9, 16, 9, 32], 3),
    (&[2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3], &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0),
];

fn hundred() -> Vec<i64> {
    (0..100).map(|i| i * 7 + 1).collect()
}

fn tensor(shape: &[i64], strides: &[i64], at: usize) -> Tensor {
    Tensor::builder(hundred()).shape(shape).strides(strides).offset(at).build().expect("it fits")
}

/// The elements that a layout should show, one index after the other.
fn model(shape: &[i64], strides: &[i64], at: usize) -> Vec<i64> {
    let values = hundred();
    let places = offsets(shape, strides).into_iter();
    places.map(|offset| values[usize::try_from(at as i128 + offset).expect("inside")]).collect()
}

#[test]
fn an_iterator_left_in_the_middle_folds_the_rest() {
    for &(shape, strides, at) in LAYOUTS {
        let tensor = tensor(shape, strides, at);
        let view = tensor.view::<i64>().expect("its own type");
        let wanted = model(shape, strides, at);
        for taken in 0..=wanted.len() {
            let mut iter = view.iter();
            assert!(iter.by_ref().take(taken).eq(wanted[..taken].iter().copied()));
            assert_eq!(iter.len(), wanted.len() - taken, "{shape:?} {strides:?}");
            assert_eq!(iter.size_hint(), (iter.len(), Some(iter.len())));
            let rest = iter.clone().fold(0_i64, |sum, value| sum * 3 % 1_000_003 + value);
            let model = wanted[taken..].iter();
            assert_eq!(rest, model.fold(0, |sum, value| sum * 3 % 1_000_003 + value));
            assert!(iter.eq(wanted[taken..].iter().copied()));
        }
    }
}

#[test]
fn an_iterator_that_ended_stays_ended() {
    let tensor = tensor(&[2, 2], &[7, 3], 0);
    let mut iter = tensor.view::<i64>().expect("its own type").into_iter();
    assert_eq!(iter.by_ref().count(), 4);
    assert_eq!((iter.next(), iter.next(), iter.len()), (None, None, 0));
    assert_eq!(iter.fold(0, |n, _| n + 1), 0);
}

#[test]
fn a_slice_of_another_length_is_not_filled() {
    let tensor = tensor(&[2, 3], &[3, 1], 0);
    let view = tensor.view::<i64>().expect("its own type");
    for len in [0, 5, 7] {
        let mut target = vec![-1; len];
        let wanted = other_length(len, 6);
        assert_eq!(view.copy_to_slice(&mut target), Err(wanted));
        assert!(target.iter().all(|&value| value == -1));
    }
}

#[test]
fn setting_one_element_sets_it_alone() {
    let (shape, strides) = (&[4, 5], &[-5, 1]);
    for (i, index) in indices(shape).iter().enumerate() {
        let mut tensor = tensor(shape, strides, 15);
        let mut view = tensor.view_mut::<i64>().expect("exclusive");
        view.set(index, -1).expect("inside");
        assert_eq!(view.get(index), Some(-1));
        let values: Vec<i64> = tensor.into_owner().expect("a vector");
        let place = usize::try_from(15 + offset(index, strides)).expect("inside");
        let mut wanted = hundred();
        wanted[place] = -1;
        assert_eq!(values, wanted, "element {i}");
    }
    let mut tensor = tensor(shape, strides, 15);
    let mut view = tensor.view_mut::<i64>().expect("exclusive");
    let refused = |index: &[usize]| {
        let message = format!("index: expected one inside the shape [4, 5], found {index:?}");
        Error::Part { kind: ErrorKind::Index, message: message.into() }
    };
    assert_eq!(view.set([4, 0], 0), Err(refused(&[4, 0])));
    assert_eq!(view.set([0], 0), Err(refused(&[0])));
    let wanted = other_length(20, 3);
    assert_eq!(view.copy_from_slice(&[1, 2, 3]), Err(wanted));
}

#[test]
fn a_panic_while_mapping_leaves_the_elements_readable() {
    let mut tensor = Tensor::from(vec![true, false, true]);
    let mut view = tensor.view_mut::<bool>().expect("exclusive");
    let mut calls = 0;
    let map = AssertUnwindSafe(|| {
        view.map_inplace(|value| {
            calls += 1;
            if calls == 2 {
                std::panic::resume_unwind(Box::new(()));
            }
            !value
        });
    });
    assert!(std::panic::catch_unwind(map).is_err());
    assert_eq!(tensor.view::<bool>().expect("bool").to_vec(), [false, false, true]);
}

#[test]
fn a_panic_in_a_map_drops_what_was_made() {
    let owner = Arc::new(());
    for (shape, strides) in [([2, 3], [3, 1]), ([3, 2], [1, 3])] {
        let tensor = tensor(&shape, &strides, 0);
        let view = tensor.view::<i64>().expect("i64");
        let mut made = 0;
        let map = AssertUnwindSafe(|| {
            view.map(|_| {
                made += 1;
                assert!(made < 5, "the fifth element is one too many");
                Arc::clone(&owner)
            })
        });
        assert!(std::panic::catch_unwind(map).is_err());
        assert_eq!((made, Arc::strong_count(&owner)), (5, 1));
        assert_eq!(view.map(|_| Arc::clone(&owner)).len(), 6);
    }
}

/// Random layouts of few elements: `may_overlap` misses none that overlap, and suspects no array with its axes in any
/// order, reversed, with gaps.
#[test]
fn elements_that_overlap_are_found_in_any_layout() {
    let mut state = 1_u64;
    let mut next = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as i64 % below as i64
    };
    let mut found = 0;
    for _ in 0..20_000 {
        let ndim = next(5) as usize;
        let shape: Vec<i64> = (0..ndim).map(|_| next(5)).collect();
        let strides: Vec<i64> = (0..ndim).map(|_| next(25) - 12).collect();
        if overlaps(&shape, &strides) {
            found += 1;
            assert!(may_overlap(&shape, &strides), "{shape:?} {strides:?}");
        }
        let (mut ordered, mut step) = (vec![0; ndim], 1 + next(3));
        let first = next(ndim.max(1)) as usize;
        for axis in (0..ndim).map(|axis| (axis + first) % ndim) {
            ordered[axis] = if next(2) == 0 { step } else { -step };
            step *= shape[axis].max(1) + next(3);
        }
        assert!(!may_overlap(&shape, &ordered), "{shape:?} {ordered:?}");
    }
    assert!(found > 1_000, "{found}");
}

// Data at an odd address: readable by value, never borrowed by reference.

/// Three numbers, the first of them at an address that is `odd` bytes from an aligned one.
fn at(odd: usize) -> Tensor {
    let mut bytes = vec![0; odd];
    bytes.extend([1.5_f64, -2.5, 3.5].iter().flat_map(|number| number.to_ne_bytes()));
    let foreign = Foreign::of_bytes(DType::F64, &[3], &bytes).data_at(odd);
    import(foreign.class(Access::Exclusive)).expect("legal")
}

fn misaligned(tensor: &Tensor) -> Error {
    Error::Misaligned { address: tensor.data_ptr().addr(), align: align_of::<f64>() }
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn unaligned_data_is_never_borrowed() {
    for odd in 1..8 {
        let mut tensor = at(odd);
        let wanted = misaligned(&tensor);
        assert_eq!(tensor.as_slice::<f64>(), Err(wanted.clone()));
        assert_eq!(tensor.as_slice_mut::<f64>(), Err(wanted.clone()));
        // SAFETY: nobody writes.
        assert_eq!(unsafe { tensor.assume_frozen() }.into_as::<&[f64]>(), Err(wanted.clone()));
        // SAFETY: nobody else has it.
        let tensor = unsafe { tensor.assume_exclusive() };
        assert_eq!(tensor.and_then(|tensor| tensor.into_as::<&mut [f64]>()), Err(wanted));
    }
    assert_eq!(at(0).as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
    assert_eq!(at(8).as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
}
