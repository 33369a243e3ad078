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
fn every_reader_returns_the_elements_in_row_major_order() {
    for &(shape, strides, at) in LAYOUTS {
        let tensor = tensor(shape, strides, at);
        let view = tensor.view::<i64>().expect("its own type");
        let wanted = model(shape, strides, at);
        let what = format!("{shape:?} {strides:?}");

        assert_eq!(view.to_vec(), wanted, "{what}: to_vec");
        let mut copy = vec![0; wanted.len()];
        view.copy_to_slice(&mut copy).expect("as long");
        assert_eq!(copy, wanted, "{what}: copy_to_slice");
        assert_eq!(view.iter().collect::<Vec<_>>(), wanted, "{what}: next");
        let folded = view.iter().fold(Vec::new(), |mut all, value| {
            all.push(value);
            all
        });
        assert_eq!(folded, wanted, "{what}: fold");
        let mix = |mixed: i64, value: i64| mixed * 3 % 1_000_003 + value;
        let lane =
            |at| wanted.iter().skip(at).step_by(3).fold(7, |mixed, &value| mix(mixed, value));
        assert_eq!(view.fold_lanes(7, mix), [0, 1, 2].map(lane), "{what}: fold_lanes");
        let got = indices(shape).iter().map(|index| view.get(index)).collect::<Option<Vec<_>>>();
        assert_eq!(got, Some(wanted.clone()), "{what}: get");
        let contiguous = tensor.to_contiguous().expect("host");
        assert_eq!(contiguous.shape(), shape, "{what}: to_contiguous");
        assert_eq!(contiguous.as_slice::<i64>(), Ok(&wanted[..]), "{what}: to_contiguous");
        match view.as_cells() {
            Some(cells) => {
                assert!(view.is_contiguous(), "{what}: cells");
                assert!(cells.iter().map(|cell| cell.get()).eq(wanted), "{what}: cells");
            }
            None => assert!(!view.is_contiguous(), "{what}: cells"),
        }
    }
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
fn an_index_outside_the_shape_is_none() {
    let tensor = tensor(&[4, 5], &[-5, 1], 15);
    let view = tensor.view::<i64>().expect("its own type");
    assert!(view.get(&[3, 4]).is_some());
    for index in
        [&[4, 0][..], &[0, 5], &[usize::MAX, 0], &[0, usize::MAX], &[usize::MAX / 2 + 1, 0]]
    {
        assert_eq!(view.get(index), None, "{index:?}");
    }
    for index in [&[][..], &[0], &[0, 0, 0]] {
        assert_eq!(view.get(index), None, "{index:?}: another rank");
    }
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
fn reversed_vector_is_not_a_slice() {
    let tensor = tensor(&[100], &[-1], 99);
    let wanted = Error::NotContiguous { axis: 0, stride: -1, expected: 1 };
    assert_eq!(tensor.as_slice::<i64>(), Err(wanted.clone()));
    assert_eq!(tensor.as_tensor_ref().as_slice::<i64>(), Err(wanted));
}

#[test]
fn a_slice_is_borrowed_for_contiguous_layouts_alone() {
    for &(shape, strides, at) in LAYOUTS {
        let mut tensor = tensor(shape, strides, at);
        let wanted = model(shape, strides, at);
        let contiguous = tensor.is_contiguous();
        match tensor.as_slice_mut::<i64>() {
            Ok(slice) => assert!(contiguous && slice == wanted, "{shape:?} {strides:?}"),
            Err(Error::NotContiguous { axis, stride, expected: wanted }) => {
                assert!(!contiguous, "{shape:?} {strides:?}");
                assert_eq!(stride, strides[axis]);
                assert_ne!(stride, wanted);
            }
            Err(other) => panic!("{shape:?} {strides:?}: {other}"),
        }
    }
}

#[test]
fn the_axis_at_fault_is_the_outermost() {
    let wanted = Error::NotContiguous { axis: 0, stride: 20, expected: 5 };
    assert_eq!(tensor(&[4, 5], &[20, 2], 10).as_slice::<i64>(), Err(wanted));
    let wanted = Error::NotContiguous { axis: 1, stride: 2, expected: 1 };
    assert_eq!(tensor(&[1, 5], &[20, 2], 10).as_slice::<i64>(), Err(wanted));
}

#[test]
fn writing_through_a_view_reaches_the_layouts_elements_alone() {
    for &(shape, strides, at) in LAYOUTS {
        let mut tensor = tensor(shape, strides, at);
        let mut view = tensor.view_mut::<i64>().expect("exclusive");
        assert_eq!((view.shape(), view.is_empty()), (shape, shape.contains(&0)));
        view.fill(-1);
        let values: Vec<i64> = tensor.into_owner().expect("a vector");
        let reached: Vec<i128> = offsets(shape, strides);
        for (place, value) in values.iter().enumerate() {
            let offset = place as i128 - at as i128;
            let wanted = if reached.contains(&offset) { -1 } else { place as i64 * 7 + 1 };
            assert_eq!(*value, wanted, "{shape:?} {strides:?}: place {place}");
        }
    }
}

#[test]
fn writing_goes_in_row_major_order() {
    for &(shape, strides, at) in LAYOUTS {
        let mut tensor = tensor(shape, strides, at);
        let mut view = tensor.view_mut::<i64>().expect("exclusive");
        let numbers: Vec<i64> = (0..view.len() as i64).collect();
        view.copy_from_slice(&numbers).expect("as long");
        let found = tensor.view::<i64>().expect("its own type").to_vec();
        if overlaps(shape, strides) {
            assert_eq!(found.last(), numbers.last(), "the last one wins");
        } else {
            assert_eq!(found, numbers, "{shape:?} {strides:?}");
        }
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
    assert_eq!(view.set(&[4, 0], 0), Err(refused(&[4, 0])));
    assert_eq!(view.set(&[0], 0), Err(refused(&[0])));
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
fn a_foreign_layout_is_read_like_ours() {
    for &(shape, strides, at) in LAYOUTS {
        let foreign = Foreign::new(shape, &hundred()).strides(strides).data_at(at * 8);
        let tensor = import(foreign).expect("legal");
        let view = tensor.view::<i64>().expect("host");
        assert_eq!(view.to_vec(), model(shape, strides, at), "{shape:?} {strides:?}");
    }
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
        let rank = next(5) as usize;
        let shape: Vec<i64> = (0..rank).map(|_| next(5)).collect();
        let strides: Vec<i64> = (0..rank).map(|_| next(25) - 12).collect();
        if overlaps(&shape, &strides) {
            found += 1;
            assert!(may_overlap(&shape, &strides), "{shape:?} {strides:?}");
        }
        let (mut ordered, mut step) = (vec![0; rank], 1 + next(3));
        let first = next(rank.max(1)) as usize;
        for axis in (0..rank).map(|axis| (axis + first) % rank) {
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
fn unaligned_data_is_read_by_value() {
    for odd in 1..8 {
        let tensor = at(odd);
        let view = tensor.view::<f64>().expect("host");
        assert_eq!(view.to_vec(), [1.5, -2.5, 3.5]);
        assert!(view.iter().eq([1.5, -2.5, 3.5]));
        assert_eq!(view.get(&[2]), Some(3.5));
        let mut target = [0.0; 3];
        view.copy_to_slice(&mut target).expect("as long");
        assert_eq!(target, [1.5, -2.5, 3.5]);
        assert!(view.is_contiguous());
        assert!(view.as_cells().is_none(), "a cell has the alignment of its element");
    }
}

#[test]
fn unaligned_data_is_written_by_value() {
    for odd in 0..8 {
        let mut tensor = at(odd);
        let mut view = tensor.view_mut::<f64>().expect("exclusive");
        view.map_inplace(|x| x * 2.0);
        view.set(&[1], 0.25).expect("inside");
        assert_eq!(tensor.view::<f64>().expect("host").to_vec(), [3.0, 0.25, 7.0]);
    }
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

#[test]
fn a_copy_of_unaligned_data_is_aligned() {
    let copy = at(3).to_contiguous().expect("host");
    assert_eq!(copy.data_ptr().addr() % 64, 0);
    assert_eq!(copy.as_slice::<f64>(), Ok(&[1.5, -2.5, 3.5][..]));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "float64 is aligned to 4 bytes")]
fn a_byte_offset_may_misalign() {
    let foreign = Foreign::of_bytes(DType::F64, &[3], &[0; 32]).byte_offset(4);
    let tensor = import(foreign.class(Access::Exclusive)).expect("legal");
    assert_eq!(tensor.as_slice::<f64>(), Err(misaligned(&tensor)));
}

#[test]
fn bytes_reread_as_numbers_may_be_misaligned() {
    let mut tensor = Tensor::builder(vec![0_u8; 33])
        .dtype(DType::F64)
        .shape(&[4])
        .build::<u8>()
        .expect("it fits");
    tensor.view_mut::<f64>().expect("exclusive").fill(2.0);
    match tensor.as_slice::<f64>() {
        Ok(slice) => assert_eq!(slice, [2.0; 4]),
        Err(error) => assert_eq!(error, misaligned(&tensor)),
    }
}

#[test]
fn an_empty_tensor_is_never_misaligned() {
    let odd = std::ptr::without_provenance_mut(0x1001);
    let foreign = Foreign::new::<f64>(&[0, 2], &[]).data(odd).class(Access::Exclusive);
    let mut tensor = import(foreign).expect("legal");
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[][..]));
    assert_eq!(tensor.as_slice_mut::<f64>(), Ok(&mut [][..]));
    assert_eq!(tensor.view::<f64>().expect("host").as_cells().map(<[_]>::len), Some(0));
}
