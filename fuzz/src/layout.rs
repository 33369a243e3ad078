//! Target `layout`: compares the arithmetic on shapes and strides with exact numbers, and layouts
//! from slicing, reversing, permuting and broadcasting with the list of elements that remain.
//! Target `view` reads typed elements.
//! Invariant: the model never reads strides that the library computed.

use std::collections::BTreeSet;

use dlbridge::layout::{
    contiguous_strides, first_gap, is_column_major, is_contiguous, may_overlap, nbytes, span,
};
use dlbridge::{
    ArcTensor, DType, DescriptorError, Error, Flags, Parts, Tensor, TensorRef, TypeCode,
};
use ndarray::{ArrayViewD, ArrayViewMutD};

use crate::elements;
use crate::input::Input;
use crate::model;
use crate::shown::Shown;

/// Checks the arithmetic on one layout, or creates one by several steps.
///
/// # Panics
///
/// If a number differs from the exact one.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(3) {
        0 => numbers(&mut input),
        1 => sizes(&mut input),
        _ => transformed(&mut input),
    }
}

/// Any numbers.
fn numbers(input: &mut Input<'_>) {
    let ndim = if input.rarely(16) { input.below(70) } else { input.below(6) };
    let shape = input.numbers(ndim);
    let strides = match input.below(4) {
        0 => model::contiguous(&shape).into_iter().map(Option::unwrap_or_default).collect(),
        1 if ndim > 0 => {
            let other = ndim - 1 + input.below(3);
            input.numbers(other)
        }
        _ => input.numbers(ndim),
    };
    measured(&shape, &strides);
    let mut made = vec![7; ndim];
    contiguous_strides(&shape, &mut made);
    for (axis, wanted) in model::contiguous(&shape).into_iter().enumerate() {
        assert!(wanted.is_none_or(|wanted| made[axis] == wanted), "{shape:?} made {made:?}");
    }
    ordinary(input);
}

/// Axes in any order and direction, each of which steps over what the axes before it reach, do not overlap.
fn ordinary(input: &mut Input<'_>) {
    let shape: Vec<i64> = (0..input.below(5)).map(|_| input.below(6) as i64).collect();
    let (mut strides, gap) = (vec![0; shape.len()], 1 + input.below(3) as i64);
    let (mut axes, mut step): (Vec<_>, _) = ((0..shape.len()).collect(), gap);
    while !axes.is_empty() {
        let axis = axes.swap_remove(input.below(axes.len()));
        strides[axis] = if input.below(2) == 0 { step } else { -step };
        step *= shape[axis].max(1) + gap - 1;
    }
    assert!(!may_overlap(&shape, &strides), "{shape:?} {strides:?} do not overlap");
}

/// Compares every property of a layout.
fn measured(shape: &[i64], strides: &[i64]) {
    let found = span(shape, strides);
    let exact = match (model::measure(shape, strides), found) {
        (Ok(exact), Ok(found)) => {
            let found_ = (found.len as i128, found.low as i128, found.high as i128);
            assert_eq!(found_, (exact.len, exact.low, exact.high), "{shape:?} {strides:?}");
            let places = if exact.len == 0 { 0 } else { exact.high - exact.low + 1 };
            assert_eq!(found.extent() as i128, places);
            exact
        }
        (Err(faults), Err(error)) => {
            assert!(faults.contains(&error), "expected one of {faults:?}, found {error:?}");
            if shape.len() == strides.len() {
                // For these only the absence of a panic is promised.
                let _ = is_contiguous(shape, strides) | is_column_major(shape, strides);
                let _ = (first_gap(shape, strides), may_overlap(shape, strides));
            }
            return;
        }
        (wanted, found) => panic!("{shape:?} {strides:?} is {found:?}, wanted {wanted:?}"),
    };
    let contiguous = model::is_contiguous(shape, strides);
    assert_eq!(is_contiguous(shape, strides), contiguous, "{shape:?} {strides:?}");
    let backwards = |list: &[i64]| list.iter().rev().copied().collect::<Vec<_>>();
    let column_major = model::is_contiguous(&backwards(shape), &backwards(strides));
    assert_eq!(is_column_major(shape, strides), column_major, "{shape:?} {strides:?}");
    match first_gap(shape, strides) {
        None => assert!(contiguous, "{shape:?} {strides:?} has a gap"),
        Some((axis, wanted)) => {
            assert!(!contiguous && shape[axis] != 1 && strides[axis] != wanted);
            let inner = shape[axis + 1..].iter().map(|&extent| i128::from(extent));
            assert_eq!(i128::from(wanted), inner.product::<i128>(), "{shape:?} {strides:?}");
            let outer_fit = (0..axis).all(|outer| {
                let inner = shape[outer + 1..].iter().map(|&extent| i128::from(extent));
                shape[outer] == 1 || i128::from(strides[outer]) == inner.product::<i128>()
            });
            assert!(outer_fit, "axis {axis} is not the outermost of {shape:?} {strides:?}");
        }
    }
    if exact.len <= 600 {
        let offsets = (0..exact.len as usize).map(|i| model::offset_of_nth(i, shape, strides));
        let places: BTreeSet<_> = offsets.collect();
        assert_eq!(places.first().copied().unwrap_or(0), exact.low);
        assert_eq!(places.last().copied().unwrap_or(0), exact.high);
        let overlap = (places.len() as i128) < exact.len;
        assert!(may_overlap(shape, strides) || !overlap, "{shape:?} {strides:?} overlap");
    }
    if contiguous || column_major {
        assert!(!may_overlap(shape, strides), "{shape:?} {strides:?} do not overlap");
    }
}

/// Compares sizes in bytes of any dtype.
fn sizes(input: &mut Input<'_>) {
    let bits = if input.rarely(2) { input.any() } else { input.below(17) as u8 };
    let lanes = if input.rarely(2) { input.any() } else { input.below(9) as u16 };
    let dtype = match input.below(3) {
        0 => input.dtype(),
        _ => DType { code: TypeCode(input.any()), bits, lanes },
    };
    let flags = Flags(input.below(8) as u64);
    let counts = [0, 1, isize::MAX as usize, isize::MAX as usize + 1, usize::MAX];
    let count = match input.below(4) {
        0 => input.below(300),
        1 => input.one_of(&counts),
        // Close to the largest value that fits.
        2 => {
            let per_element = (usize::from(bits) * usize::from(lanes) / 8).max(1);
            (isize::MAX as usize / per_element).saturating_add(input.below(5)).saturating_sub(2)
        }
        _ => input.any(),
    };
    let wanted = model::size(count as i128, dtype, flags);
    match (nbytes(count, dtype, flags), wanted) {
        (Ok(found), Some(wanted)) => assert_eq!(found as i128, wanted, "{count} of {dtype:?}"),
        (Err(error), None) => assert_eq!(
            error,
            Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" })
        ),
        (found, wanted) => panic!("{count} of {dtype:?} {flags:?}: {found:?}, wanted {wanted:?}"),
    }
    let text = dtype.to_string();
    if let Ok(again) = text.parse::<DType>() {
        assert_eq!(again, dtype, "{text}");
    } else {
        // A code with a name has a fixed width; there is at least one lane.
        assert!(model::is_impossible(dtype), "{text} is not understood");
    }
}

/// Transforms one contiguous array in a few steps.
fn transformed(input: &mut Input<'_>) {
    let mut shown = Shown::contiguous(input.small_shape());
    for _ in 0..input.below(8) {
        shown.step(input);
    }
    let Shown { shape, strides, offset, places, owner, part } = shown;
    same_elements(&part, &shape, &places);
    measured(&shape, &strides);
    let exact = model::measure(&shape, &strides).expect("small numbers");
    assert_eq!(exact.len, places.len() as i128, "{shape:?}");
    let memory: Vec<i64> = (0..owner).collect();
    // A tensor without elements may have any address, but the builder requires one in the owner.
    let offset = if places.is_empty() { 0 } else { offset };
    let builder = Tensor::builder(memory).shape(&shape).strides(&strides).offset(offset as usize);
    let mut tensor = builder.build::<i64>().expect("it is within the owner's memory");
    let counts_up = places.iter().zip(places.iter().skip(1)).all(|(a, b)| a + 1 == *b);
    assert_eq!(tensor.is_contiguous(), counts_up, "{shape:?} {strides:?}");
    elements::check_view(tensor.view::<i64>().expect("of this type"), &places, true, input);
    let array = tensor.view_as::<ArrayViewD<i64>>().expect("exclusive and aligned");
    assert!(array.iter().eq(places.iter()), "{shape:?} {strides:?}");
    let again = TensorRef::from(&array);
    assert_eq!(again.view::<i64>().expect("of this type").to_vec(), places);
    let overlap = places.iter().collect::<BTreeSet<_>>().len() < places.len();
    match tensor.view_mut_as::<ArrayViewMutD<i64>>() {
        Ok(mut array) => {
            assert!(!overlap, "{shape:?} {strides:?} overlap");
            array.map_inplace(|place| *place = -*place);
            let wanted: Vec<i64> = places.iter().map(|place| -place).collect();
            assert_eq!(tensor.view::<i64>().expect("of this type").to_vec(), wanted);
        }
        Err(error) => assert_eq!(error, Error::Overlapping),
    }
}

/// Compares a part that the library made with the list of its elements.
fn same_elements(part: &ArcTensor, shape: &[i64], places: &[i64]) {
    let view = part.view::<i64>().expect("of this type");
    assert_eq!((view.shape(), &view.to_vec()[..]), (shape, places));
    let rows: Vec<i64> = view.rows().flat_map(|row| row.to_vec()).collect();
    assert_eq!(rows, places);
    let sorted = |mut places: Vec<i64>| {
        places.sort_unstable();
        places
    };
    let whole = sorted(places.to_vec());
    for (axis, &extent) in shape.iter().enumerate() {
        let (front, back) = view.split_at(axis, extent as usize / 2).expect("inside");
        assert_eq!(sorted([front.to_vec(), back.to_vec()].concat()), whole, "{shape:?} by {axis}");
    }
    let turned = view.transpose().transpose().unsqueeze(0).and_then(|part| part.squeeze(0));
    assert_eq!(turned.expect("the axis that was added").to_vec(), places);
    for from in 0..=shape.len() {
        // Some axes become one, then each even axis two.
        for to in from..=shape.len() {
            let extent = shape[from..to].iter().product::<i64>();
            let joined = [&shape[..from], &[extent], &shape[to..]].concat();
            let halves =
                |&extent: &i64| if extent % 2 == 0 { vec![extent / 2, 2] } else { vec![extent] };
            reshaped(part, &joined, places);
            reshaped(part, &joined.iter().flat_map(halves).collect::<Vec<_>>(), places);
        }
    }
}

/// Reshapes: the elements are the same, and a shape is refused only if no strides reach them in this order.
fn reshaped(part: &ArcTensor, shape: &[i64], places: &[i64]) {
    let view = part.view::<i64>().expect("of this type");
    if let Ok(view) = view.reshape(shape) {
        return assert_eq!((view.shape(), &view.to_vec()[..]), (shape, places));
    }
    let at = |i: usize| model::index_of(i, shape);
    let steps: Vec<i64> = (0..shape.len())
        .map(|axis| match shape[axis + 1..].iter().product::<i64>() as usize {
            second if shape[axis] > 1 => places[second] - places[0],
            _ => 0,
        })
        .collect();
    let reached =
        |i| places[0] + at(i).iter().zip(&steps).map(|(&i, step)| i as i64 * step).sum::<i64>();
    let has_strides = (0..places.len()).all(|i| reached(i) == places[i]);
    assert!(!has_strides, "{shape:?} has strides {steps:?}: {places:?}");
}
