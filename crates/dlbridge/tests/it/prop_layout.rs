//! Arithmetic on layouts against a brute-force model in 128 bits, at the edges above all.
//! Random descriptors are in `prop_validation.rs`.

use std::collections::VecDeque;

use crate::common::{indices, offset, offsets, other_rank, overlaps};
use dlbridge::layout::{self, Span};
use dlbridge::{DType, DescriptorError, Error, Flags, Tensor, TypeCode};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const EDGES: [i64; 12] =
    [i64::MIN, i64::MIN + 1, -(1 << 32), -2, -1, 0, 1, 2, 1 << 31, 1 << 61, i64::MAX - 1, i64::MAX];

fn any_number() -> impl Strategy<Value = i64> {
    prop_oneof![3 => -4..5_i64, 2 => select(&EDGES[..]), 1 => any::<i64>()]
}

/// As many extents as strides, from everywhere.
fn wild() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    (0..6_usize).prop_flat_map(|rank| (vec(any_number(), rank), vec(any_number(), rank)))
}

/// Extents small enough to walk, strides from everywhere.
fn walkable() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    (0..5_usize).prop_flat_map(|rank| (vec(0..5_i64, rank), vec(any_number(), rank)))
}

/// Layouts that fit into a short vector.
fn small() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    (0..5_usize).prop_flat_map(|rank| (vec(0..5_i64, rank), vec(-6..7_i64, rank)))
}

/// Layouts with rows so long that iterators have a loop for each.
fn long() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    (0..3_i64, 10..40_i64, vec(-50..50_i64, 2)).prop_map(|(n, m, strides)| (vec![n, m], strides))
}

/// What [`layout::span`] has to say, in 128 bits.
fn model_span(shape: &[i64], strides: &[i64]) -> Result<Span, Error> {
    if let Some(axis) = shape.iter().position(|&extent| extent < 0) {
        return Err(Error::Descriptor(DescriptorError::NegativeExtent {
            axis,
            extent: shape[axis],
        }));
    }
    let fits = |number: i128| isize::try_from(number).ok();
    let wide = shape.iter().filter(|&&extent| extent != 0);
    let len = wide.copied().map(i128::from).try_fold(1_i128, i128::checked_mul);
    let Some(len) = len.and_then(fits) else {
        return Err(Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" }));
    };
    if shape.contains(&0) {
        return Ok(Span { len: 0, low: 0, high: 0 });
    }
    let (mut low, mut high) = (0_i128, 0_i128);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let reach = i128::from(extent - 1) * i128::from(stride);
        *if reach < 0 { &mut low } else { &mut high } += reach;
    }
    match (fits(low), fits(high), fits(high - low)) {
        (Some(low), Some(high), Some(_)) => Ok(Span { len: len as usize, low, high }),
        _ => Err(Error::Descriptor(DescriptorError::SizeOverflow { what: "strided span" })),
    }
}

/// A tensor over exactly the memory that a layout reaches, element `i` of which is `i`.
fn exact(shape: &[i64], strides: &[i64]) -> (Tensor, usize) {
    let span = layout::span(shape, strides).expect("small");
    let at = span.low.unsigned_abs();
    let owner: Vec<i64> = (0..span.extent() as i64).collect();
    let builder = Tensor::builder(owner).shape(shape).strides(strides).offset(at);
    (builder.build::<i64>().expect("exactly what it reaches"), at)
}

proptest! {
    #[test]
    fn a_span_is_exact_or_refused((shape, strides) in wild()) {
        prop_assert_eq!(layout::span(&shape, &strides), model_span(&shape, &strides));
    }

    #[test]
    fn a_span_covers_all_offsets_and_is_reached((shape, strides) in small()) {
        let span = layout::span(&shape, &strides).expect("small");
        let all = offsets(&shape, &strides);
        prop_assert_eq!(span.len, all.len());
        let lowest = all.iter().copied().min().unwrap_or(0);
        let highest = all.iter().copied().max().unwrap_or(0);
        prop_assert_eq!((span.low as i128, span.high as i128), (lowest, highest));
        let extent = if all.is_empty() { 0 } else { highest - lowest + 1 };
        prop_assert_eq!(span.extent() as i128, extent);
    }

    #[test]
    fn lists_of_different_length_have_no_span(
        shape in vec(any_number(), 0..5),
        extra in 1..3_usize,
    ) {
        let strides = vec![1; shape.len() + extra];
        let wanted = other_rank(shape.len(), strides.len());
        prop_assert_eq!(layout::span(&shape, &strides), Err(wanted));
        let wanted = other_rank(strides.len(), shape.len());
        prop_assert_eq!(layout::span(&strides, &shape), Err(wanted));
    }

    #[test]
    fn contiguous_means_that_the_offsets_count_up((shape, strides) in walkable()) {
        let all = offsets(&shape, &strides);
        let counts_up = all.iter().enumerate().all(|(i, &at)| at == i as i128);
        prop_assert_eq!(layout::is_contiguous(&shape, &strides), counts_up);
        let gap = layout::first_gap(&shape, &strides);
        prop_assert_eq!(gap.is_none(), counts_up);
        if let Some((axis, wanted)) = gap {
            prop_assert!(strides[axis] != wanted && shape[axis] > 1);
            let inner: i64 = shape[axis + 1..].iter().product();
            prop_assert_eq!(wanted, inner, "what the axis would have");
        }
    }

    #[test]
    fn column_major_is_row_major_backwards((mut shape, mut strides) in walkable()) {
        let column_major = layout::is_column_major(&shape, &strides);
        shape.reverse();
        strides.reverse();
        let all = offsets(&shape, &strides);
        let counts_up = all.iter().enumerate().all(|(i, &at)| at == i as i128);
        prop_assert_eq!(column_major, counts_up);
    }

    #[test]
    fn no_overlap_is_a_proof((shape, strides) in walkable()) {
        let overlap = overlaps(&shape, &strides);
        prop_assert!(layout::may_overlap(&shape, &strides) || !overlap);
    }

    #[test]
    fn ordinary_layouts_are_not_said_to_overlap(
        shape in vec(0..6_i64, 0..5),
        order in any::<u64>(),
        gap in 1..4_i64,
        backwards in any::<u8>(),
    ) {
        // the axes in any order, each stepping over what the ones before it reach, and more
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.sort_by_key(|&axis| order.rotate_left(13 * axis as u32));
        let mut strides = vec![0; shape.len()];
        let mut step = gap;
        for axis in axes {
            strides[axis] = if backwards >> axis & 1 == 1 { -step } else { step };
            step *= shape[axis].max(1) + gap - 1;
        }
        prop_assert!(!layout::may_overlap(&shape, &strides));
    }

    #[test]
    fn nothing_panics_whatever_the_numbers((shape, strides) in wild()) {
        let _ = layout::is_contiguous(&shape, &strides);
        let _ = layout::is_column_major(&shape, &strides);
        let _ = layout::first_gap(&shape, &strides);
        let _ = layout::may_overlap(&shape, &strides);
        layout::contiguous_strides(&shape, &mut strides.clone());
        let built = Tensor::builder(vec![0_u8; 9]).shape(&shape).strides(&strides).offset(4);
        if let Ok(tensor) = built.build::<u8>() {
            let span = layout::span(tensor.shape(), tensor.strides()).expect("accepted");
            prop_assert!(span.len == 0 || span.low >= -4 && span.high <= 4);
        }
    }

    #[test]
    fn contiguous_strides_are_contiguous(shape in vec(prop_oneof![0..7_i64, any_number()], 0..6)) {
        let mut strides = vec![7; shape.len()];
        layout::contiguous_strides(&shape, &mut strides);
        if let Ok(span) = layout::span(&shape, &strides) {
            prop_assert!(layout::is_contiguous(&shape, &strides));
            prop_assert!(!layout::may_overlap(&shape, &strides));
            prop_assert_eq!(span.extent(), span.len);
        }
        // the model, as far as the numbers go
        let mut step = Some(1_i64);
        for axis in (0..shape.len()).rev() {
            if let Some(step) = step {
                prop_assert_eq!(strides[axis], step);
            }
            step = step.and_then(|step| step.checked_mul(shape[axis].max(1)));
        }
    }

    #[test]
    fn sizes_are_exact_or_refused(
        count in prop_oneof![0..100_usize, any::<usize>(), select(&[isize::MAX as usize][..])],
        bits in prop_oneof![1..9_u8, any::<u8>()],
        lanes in prop_oneof![1..5_u16, any::<u16>()],
        padded in any::<bool>(),
    ) {
        let dtype = DType { code: TypeCode(99), bits, lanes };
        let flags = if padded { Flags::SUBBYTE_PADDED } else { Flags::NONE };
        let (count_, bits_, lanes_) = (count as u128, u128::from(bits), u128::from(lanes));
        let size = if bits < 8 && padded {
            count_ * lanes_
        } else if bits < 8 {
            (count_ * bits_ * lanes_).div_ceil(8)
        } else {
            count_ * (bits_ * lanes_).div_ceil(8)
        };
        // elements that end inside a byte are counted in bits, which must fit a word themselves
        let packed = bits < 8 && !padded && bits_ * lanes_ % 8 != 0;
        let countable = !packed || count_ * bits_ * lanes_ <= usize::MAX as u128;
        let wanted = match isize::try_from(size) {
            Ok(size) if countable => Ok(size as usize),
            _ => Err(Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" })),
        };
        prop_assert_eq!(layout::nbytes(count, dtype, flags), wanted);
    }

    #[test]
    fn views_read_what_the_model_reads((shape, strides) in small()) {
        let (tensor, at) = exact(&shape, &strides);
        let all = offsets(&shape, &strides).into_iter();
        let wanted: Vec<i64> = all.map(|offset| (at as i128 + offset) as i64).collect();
        let view = tensor.view::<i64>().expect("i64");
        prop_assert_eq!(view.to_vec(), wanted.clone());
        prop_assert_eq!(view.iter().collect::<Vec<_>>(), wanted.clone());
        let mut folded = Vec::new();
        view.iter().for_each(|value| folded.push(value));
        prop_assert_eq!(folded, wanted.clone());
        for (index, value) in indices(&shape).iter().zip(&wanted) {
            prop_assert_eq!(view.get(index), Some(*value));
            let place = at as i128 + offset(index, &strides);
            prop_assert_eq!(place, i128::from(*value));
        }
        let contiguous = tensor.to_contiguous().expect("host");
        prop_assert_eq!(contiguous.as_slice::<i64>(), Ok(&wanted[..]));
        prop_assert_eq!(tensor.as_slice::<i64>().is_ok(), layout::is_contiguous(&shape, &strides));
    }

    #[test]
    fn iterators_return_each_element_once_from_either_end(
        (shape, strides) in prop_oneof![small(), long()],
        ends in vec(any::<bool>(), 0..30),
    ) {
        let (tensor, _) = exact(&shape, &strides);
        let view = tensor.view::<i64>().expect("i64");
        let mut wanted: VecDeque<i64> = view.to_vec().into();
        let mut elements = view.iter();
        for at_the_front in ends {
            prop_assert_eq!(elements.size_hint(), (wanted.len(), Some(wanted.len())));
            prop_assert_eq!(elements.len(), wanted.len());
            // whatever was taken so far, all ways to the rest agree
            let mut folded = Vec::new();
            elements.clone().for_each(|value| folded.push(value));
            prop_assert_eq!(folded, Vec::from(wanted.clone()));
            prop_assert!(elements.clone().eq(wanted.iter().copied()));
            prop_assert!(elements.clone().rev().eq(wanted.iter().rev().copied()));
            if at_the_front {
                prop_assert_eq!(elements.next(), wanted.pop_front());
            } else {
                prop_assert_eq!(elements.next_back(), wanted.pop_back());
            }
        }
    }

    #[test]
    fn a_map_is_what_collect_makes((shape, strides) in small()) {
        let (tensor, _) = exact(&shape, &strides);
        let view = tensor.view::<i64>().expect("i64");
        let wanted: Vec<String> = view.iter().map(|value| value.to_string()).collect();
        prop_assert_eq!(view.map(|value| value.to_string()), wanted);
    }

    #[test]
    fn views_write_where_the_model_writes((shape, strides) in small(), start in any::<i64>()) {
        let (mut tensor, at) = exact(&shape, &strides);
        let extent = layout::span(&shape, &strides).expect("small").extent();
        let mut model: Vec<i64> = (0..extent as i64).collect();
        let mut next = start;
        let mut step = || {
            next = next.wrapping_mul(31).wrapping_add(7);
            next
        };
        let values: Vec<i64> = (0..tensor.len()).map(|_| step()).collect();
        for (offset, value) in offsets(&shape, &strides).into_iter().zip(&values) {
            model[(at as i128 + offset) as usize] = *value;
        }
        tensor.view_mut::<i64>().expect("exclusive").copy_from_slice(&values).expect("as long");
        prop_assert_eq!(tensor.into_owner::<Vec<i64>>().expect("a vector"), model);
    }
}

#[cfg(feature = "ndarray-0_17")]
proptest! {
    #[test]
    fn arrays_show_what_views_show((shape, strides) in small()) {
        let (mut tensor, _) = exact(&shape, &strides);
        let wanted = tensor.view::<i64>().expect("i64").to_vec();
        let array = tensor.view_as::<ndarray::ArrayViewD<i64>>().expect("exclusive");
        prop_assert!(array.iter().copied().eq(wanted.iter().copied()));
        let again = dlbridge::TensorRef::from(&array);
        prop_assert_eq!(again.view::<i64>().expect("i64").to_vec(), wanted.clone());
        let may_overlap = layout::may_overlap(&shape, &strides);
        match tensor.view_mut_as::<ndarray::ArrayViewMutD<i64>>() {
            Ok(mut array) => {
                prop_assert!(!may_overlap);
                array.map_inplace(|value| *value = -*value);
                let negated: Vec<i64> = wanted.iter().map(|value| -value).collect();
                prop_assert_eq!(tensor.view::<i64>().expect("i64").to_vec(), negated);
            }
            Err(error) => {
                prop_assert_eq!(error, Error::Overlapping);
                prop_assert!(may_overlap);
            }
        }
    }
}
