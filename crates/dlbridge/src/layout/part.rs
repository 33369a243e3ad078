//! Parts of a measured layout: numbers only. `raw/descriptor/part.rs` applies them to memory.
//! Invariant: each element of a part is an element of the whole, `offset` away from its first element.
#![forbid(unsafe_code)]

use super::{Dims, Layout, OwnedLayout, Span, contiguous_strides};
use crate::{DType, DescriptorError, Error, ErrorKind, Flags};

/// One way to make a part of a tensor.
///
/// A closed set: only [`Layout::part`] computes offsets from it. It cannot be named outside of this crate, so
/// that no other crate implements [`Parts`](crate::Parts).
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Cut<'c> {
    /// One index of an axis; the axis is removed.
    Select { axis: usize, index: usize },
    /// A range of an axis, to its end without an `end`.
    Slice { axis: usize, start: usize, end: Option<usize> },
    /// Every `step`-th element of an axis, from the last one backwards if negative.
    Step { axis: usize, step: isize },
    /// The axes in reverse.
    Transpose,
    /// The axes in another order.
    Permute(&'c [usize]),
    /// Removes an axis of extent 1.
    Squeeze { axis: usize },
    /// Inserts an axis of extent 1.
    Unsqueeze { axis: usize },
    /// Other extents over the same elements, in row-major order. One extent may be -1.
    Reshape(&'c [i64]),
    /// Repeats axes of extent 1, and inserts axes in front.
    Broadcast(&'c [i64]),
}

/// A part of a layout, measured.
pub(crate) struct Part {
    layout: OwnedLayout,
    /// Of its element `[0, 0, ...]` from that of the whole, in elements; 0 if there are none.
    offset: isize,
}

impl Part {
    /// The layout, and the offset of its first element in elements.
    #[inline]
    pub(crate) fn into_inner(self) -> (OwnedLayout, isize) {
        (self.layout, self.offset)
    }
}

impl Layout<'_> {
    /// Makes a part of this layout, and measures it.
    ///
    /// # Errors
    ///
    /// [`Error::Part`] for an axis, index or shape that does not fit; those of [`Layout::measure`] if the
    /// layout grows (a broadcast axis, a rank above the limit).
    pub(crate) fn part(&self, cut: Cut<'_>) -> Result<Part, Error> {
        let (shape, strides) = (self.shape(), self.strides());
        let rank = shape.len();
        let axis_at = |axis| match axis < rank {
            true => Ok((shape[axis], strides[axis])),
            false => Err(Error::axis(axis, rank)),
        };
        let same = || (Dims::from(shape), Dims::from(strides));
        let mut offset = 0_i64;
        let (shape, strides) = match cut {
            Cut::Select { axis, index } => {
                let (extent, stride) = axis_at(axis)?;
                let inside = i64::try_from(index).ok().filter(|&index| index < extent);
                let Some(inside) = inside else {
                    return Err(Error::part(
                        ErrorKind::Index,
                        format_args!(
                            "expected an index below {extent} on axis {axis}, found {index}"
                        ),
                    ));
                };
                // Wraps only where there are no elements, as below; `finish` ignores it then.
                offset = inside.wrapping_mul(stride);
                (without(shape, axis), without(strides, axis))
            }
            Cut::Slice { axis, start, end } => {
                let (extent, stride) = axis_at(axis)?;
                let end = end.unwrap_or(extent as usize);
                if start > end || end > extent as usize {
                    return Err(Error::part(
                        ErrorKind::OutOfBounds,
                        format_args!(
                            "expected a range within 0..{extent} on axis {axis}, found {start}..{end}"
                        ),
                    ));
                }
                let (mut shape, strides) = same();
                shape[axis] = (end - start) as i64;
                offset = (start as i64).wrapping_mul(stride);
                (shape, strides)
            }
            Cut::Step { axis, step } => {
                let (extent, stride) = axis_at(axis)?;
                if step == 0 {
                    return Err(Error::part(
                        ErrorKind::Argument,
                        format_args!("expected a step other than 0 on axis {axis}, found 0"),
                    ));
                }
                let (mut shape, mut strides) = same();
                if extent > 0 {
                    let last = (extent - 1) as u64;
                    shape[axis] = (last / step.unsigned_abs() as u64) as i64 + 1;
                    offset = if step < 0 { (last as i64).wrapping_mul(stride) } else { 0 };
                }
                // The stride of an axis of one element means nothing, and may be too large for this.
                if shape[axis] > 1 {
                    strides[axis] = stride.wrapping_mul(step as i64);
                }
                (shape, strides)
            }
            Cut::Transpose => {
                let (mut shape, mut strides) = same();
                shape.reverse();
                strides.reverse();
                (shape, strides)
            }
            Cut::Permute(axes) => {
                let once = |axis| axes.iter().filter(|&&other| other == axis).count() == 1;
                if axes.len() != rank || !(0..rank).all(once) {
                    return Err(Error::part(
                        ErrorKind::Argument,
                        format_args!("expected each axis below {rank} once, found {axes:?}"),
                    ));
                }
                (permuted(shape, axes), permuted(strides, axes))
            }
            Cut::Squeeze { axis } => {
                let (extent, _) = axis_at(axis)?;
                if extent != 1 {
                    return Err(Error::part(
                        ErrorKind::Shape,
                        format_args!(
                            "expected extent 1 on axis {axis}, found {extent}; use select() for one index"
                        ),
                    ));
                }
                (without(shape, axis), without(strides, axis))
            }
            Cut::Unsqueeze { axis } => {
                if axis > rank {
                    return Err(Error::axis(axis, rank + 1));
                }
                // As in a contiguous tensor, where this is one: some consumers compare the strides of
                // all axes.
                let stride = match shape.get(axis) {
                    Some(&extent) => extent.max(1).wrapping_mul(strides[axis]),
                    None => 1,
                };
                (with(shape, axis, 1), with(strides, axis, stride))
            }
            Cut::Reshape(expected) => reshaped(*self, expected)?,
            Cut::Broadcast(expected) => broadcast(shape, strides, expected)?,
        };
        self.finish(shape, strides, offset)
    }

    /// Measures the numbers of a part, for elements of this layout's type.
    fn finish(&self, shape: Dims, strides: Dims, offset: i64) -> Result<Part, Error> {
        let layout = OwnedLayout::of(shape, strides, self.dtype(), self.padding)?;
        // Where there is an element, its offset was measured.
        let offset = if layout.borrow().len() == 0 { 0 } else { offset as isize };
        Ok(Part { layout, offset })
    }
}

fn without(numbers: &[i64], axis: usize) -> Dims {
    let mut left = Dims::zeros(numbers.len() - 1);
    left[..axis].copy_from_slice(&numbers[..axis]);
    left[axis..].copy_from_slice(&numbers[axis + 1..]);
    left
}

fn with(numbers: &[i64], axis: usize, number: i64) -> Dims {
    let mut all = Dims::zeros(numbers.len() + 1);
    all[..axis].copy_from_slice(&numbers[..axis]);
    all[axis] = number;
    all[axis + 1..].copy_from_slice(&numbers[axis..]);
    all
}

fn permuted(numbers: &[i64], axes: &[usize]) -> Dims {
    let mut all = Dims::zeros(numbers.len());
    for (to, &axis) in all.iter_mut().zip(axes) {
        *to = numbers[axis];
    }
    all
}

fn broadcast(shape: &[i64], strides: &[i64], expected: &[i64]) -> Result<(Dims, Dims), Error> {
    let refused = || {
        Err(Error::part(
            ErrorKind::Shape,
            format_args!("expected a shape that {shape:?} can be repeated to, found {expected:?}"),
        ))
    };
    let Some(front) = expected.len().checked_sub(shape.len()) else { return refused() };
    let mut repeated = Dims::zeros(expected.len());
    for (axis, (&extent, &stride)) in shape.iter().zip(strides).enumerate() {
        repeated[front + axis] = match expected[front + axis] {
            same if same == extent => stride,
            _ if extent == 1 => 0,
            _ => return refused(),
        };
    }
    Ok((expected.into(), repeated))
}

// Reshaping without a copy: strides for other extents over the same elements.
// Invariant: element `i` in row-major order is the same before and after.

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

// The location of a chosen shape within the memory of an owner: numbers only.

/// A chosen shape within the memory of an owner.
pub(crate) struct Placement<'a> {
    pub(crate) layout: Layout<'a>,
    pub(crate) span: Span,
    /// Of element `[0, 0, ...]`, in elements, from the start of the memory.
    pub(crate) offset: usize,
}

impl<'a> Placement<'a> {
    /// Measures the shape.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::measure`].
    #[inline]
    pub(crate) fn new(
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
        offset: usize,
        flags: Flags,
    ) -> Result<Self, Error> {
        let layout = Layout::measure(shape, strides, dtype, flags)?;
        Ok(Self { layout, span: layout.span(), offset })
    }

    pub(crate) fn rank(&self) -> usize {
        self.layout.shape().len()
    }

    /// The byte offset of element `[0, 0, ...]` in memory of `size` bytes.
    pub(crate) fn offset_within(&self, size: usize) -> Result<usize, Error> {
        let (span, dtype) = (self.span, self.layout.dtype());
        let overflow = || Error::Descriptor(DescriptorError::SizeOverflow { what: "strided span" });
        let offset = isize::try_from(self.offset).map_err(|_| overflow())?;
        let (low, high) = match span.len {
            0 => (offset, offset),
            _ => (
                offset.checked_add(span.low).ok_or_else(overflow)?,
                offset
                    .checked_add(span.high)
                    .and_then(|at| at.checked_add(1))
                    .ok_or_else(overflow)?,
            ),
        };
        let bytes = |count: isize| -> Result<_, Error> {
            let size = self.bytes(count.unsigned_abs())?;
            Ok(if count < 0 { -(size as isize) } else { size as isize })
        };
        let (low, high) = (bytes(low)?, bytes(high)?);
        if low < 0 || high.unsigned_abs() > size {
            return Err(Error::OutOfBounds { low, high, size });
        }
        if self.layout.unit().is_packed() && (self.offset != 0 || span.low != 0) {
            return Err(Error::SubByte { padded: false, dtype });
        }
        Ok(bytes(offset)?.unsigned_abs())
    }

    /// The size of some elements, contiguous.
    pub(crate) fn bytes(&self, count: usize) -> Result<usize, Error> {
        let size = self.layout.unit().size(count);
        size.ok_or(Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" }))
    }
}
