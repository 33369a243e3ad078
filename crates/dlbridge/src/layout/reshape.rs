//! Reshaping without a copy: strides for other extents over the same elements.
//! Invariant: element `i` in row-major order is the same before and after.
#![forbid(unsafe_code)]

use super::{Dims, Layout, contiguous_strides};
use crate::{Error, ErrorKind};

/// The shape, with -1 resolved, and the strides with which it reaches the same elements.
pub(super) fn reshaped(whole: Layout<'_>, expected: &[i64]) -> Result<(Dims, Dims), Error> {
    let shape = resolved(whole, expected)?;
    if shape.contains(&0) {
        let mut strides = Dims::zeros(shape.len());
        contiguous_strides(&shape, &mut strides);
        return Ok((shape, strides));
    }
    match regrouped(whole, &shape) {
        Some(strides) => Ok((shape, strides)),
        None => {
            let (shape, strides) = (whole.shape(), whole.strides());
            Err(Error::part(
                ErrorKind::Layout,
                format_args!(
                    "expected strides that allow shape {expected:?} without a copy, found \
                     {strides:?} for shape {shape:?}"
                ),
            ))
        }
    }
}

/// The shape, in which -1 stands for what the other extents leave. It has as many elements as `whole`.
fn resolved(whole: Layout<'_>, expected: &[i64]) -> Result<Dims, Error> {
    let refused = || {
        let shape = whole.shape();
        Err(Error::part(
            ErrorKind::Shape,
            format_args!("expected a shape with the elements of {shape:?}, found {expected:?}"),
        ))
    };
    let mut shape = Dims::from(expected);
    // Of extents that fit, or of none: what wraps is refused below, when the shape is measured.
    let known = expected.iter().filter(|&&extent| extent != -1);
    let known = if expected.contains(&0) {
        Some(0)
    } else {
        known.copied().try_fold(1_i64, |count, extent| match extent {
            1.. => count.checked_mul(extent),
            _ => None,
        })
    };
    let Some(known) = known else { return refused() };
    let len = whole.len() as i64;
    let open: usize = expected.iter().filter(|&&extent| extent == -1).count();
    let missing = match open {
        0 => 1,
        1 if known != 0 && len % known == 0 => len / known,
        _ => return refused(),
    };
    if known * missing != len {
        return refused();
    }
    for extent in shape.iter_mut().filter(|extent| **extent == -1) {
        *extent = missing;
    }
    Ok(shape)
}

/// Strides for a shape with as many elements as `whole`, at least one.
///
/// Both lists of extents are cut into the shortest groups of equal products. The old axes of a group
/// must step like one axis, which the new ones then divide.
fn regrouped(whole: Layout<'_>, shape: &[i64]) -> Option<Dims> {
    // Axes of extent 1 step like any other. From the innermost axis out.
    let axes = whole.shape().iter().zip(whole.strides()).rev();
    let mut old = axes.map(|(&extent, &stride)| (extent, stride)).filter(|axis| axis.0 != 1);
    let mut strides = Dims::zeros(shape.len());
    let (mut new, mut next) = (shape.len(), 1_i64);
    while let Some((extent, stride)) = old.next() {
        let (mut before, mut after, mut outermost) = (extent, 1_i64, (extent, stride));
        next = stride;
        while before != after {
            if before < after {
                let outer = old.next()?;
                let (extent, stride) = outermost;
                if stride.checked_mul(extent) != Some(outer.1) {
                    return None;
                }
                before *= outer.0;
                outermost = outer;
            } else {
                new -= 1;
                strides[new] = next;
                // Past the last element of the group it may wrap, and is not a stride any more.
                next = next.wrapping_mul(shape[new]);
                after *= shape[new];
            }
        }
    }
    // All that is left has extent 1.
    for stride in &mut strides[..new] {
        *stride = next;
    }
    Some(strides)
}
