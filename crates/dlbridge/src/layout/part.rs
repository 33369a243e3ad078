//! Parts of a measured layout: numbers only. `memory/descriptor/checked.rs` applies them to memory.
//! Invariant: each element of a part is an element of the whole, `offset` away from its first element.
#![forbid(unsafe_code)]

use super::{Layout, Lists, Span, contiguous_strides};
use crate::{DType, DescriptorError, Error, ErrorKind, Flags};

/// One way to make a part of a tensor.
///
/// A closed set: only [`Layout::write_part`] computes offsets from it. It cannot be named outside of this crate, so
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
    /// What Python's index says of the axes, one place after the other. Axes without a place are whole.
    Index(&'c [Place]),
}

/// A place of Python's index.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// One index of an axis; the axis is removed.
    At(usize),
    /// Elements of an axis, each a step behind the one before.
    Range {
        /// The index of the first one.
        first: usize,
        /// The step, which may be negative.
        step: isize,
        /// How many there are.
        count: usize,
    },
    /// So many axes as they are.
    Whole(usize),
    /// A new axis of extent 1.
    New,
}

impl Cut<'_> {
    /// The number of axes of the part, if those that this names exist in a tensor of `whole` axes.
    #[inline]
    pub(crate) fn ndim(&self, whole: usize) -> usize {
        match *self {
            Self::Select { .. } | Self::Squeeze { .. } => whole.saturating_sub(1),
            Self::Unsqueeze { .. } => whole + 1,
            Self::Reshape(shape) | Self::Broadcast(shape) => shape.len(),
            Self::Index(places) => places.iter().fold(whole, |ndim, place| match place {
                Place::At(_) => ndim.saturating_sub(1),
                Place::New => ndim + 1,
                Place::Range { .. } | Place::Whole(_) => ndim,
            }),
            Self::Slice { .. } | Self::Step { .. } | Self::Transpose | Self::Permute(_) => whole,
        }
    }
}

impl Layout<'_> {
    /// Writes the numbers of a part, which are not measured yet. Returns how many elements its element
    /// `[0, 0, ...]` is away from that of the whole, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::Part`] for an axis, index or shape that does not fit.
    ///
    /// # Panics
    ///
    /// If there is no space for as many axes as [`Cut::ndim`] says.
    pub(super) fn write_part(&self, cut: Cut<'_>, part: &mut Lists<'_>) -> Result<isize, Error> {
        let (shape, strides) = (self.shape(), self.strides());
        let ndim = shape.len();
        let axis_at = |axis| match axis < ndim {
            true => Ok((shape[axis], strides[axis])),
            false => Err(Error::axis(axis, ndim)),
        };
        let numbers = |axis: usize| (shape[axis], strides[axis]);
        // Wraps only where there are no elements.
        let mut offset = 0_i64;
        match cut {
            Cut::Select { axis, index } => {
                let extent_and_stride = axis_at(axis)?;
                offset = selected(axis, index, extent_and_stride)?;
                part.fill((0..ndim).filter(|&other| other != axis).map(numbers));
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
                offset = (start as i64).wrapping_mul(stride);
                part.fill((0..ndim).map(numbers));
                part.shape[axis] = (end - start) as i64;
            }
            Cut::Step { axis, step } => {
                let (extent, stride) = axis_at(axis)?;
                check_step(axis, step)?;
                part.fill((0..ndim).map(numbers));
                if extent > 0 {
                    let last = (extent - 1) as u64;
                    part.shape[axis] = (last / step.unsigned_abs() as u64) as i64 + 1;
                    offset = if step < 0 { (last as i64).wrapping_mul(stride) } else { 0 };
                }
                part.strides[axis] = stepped(stride, step, part.shape[axis]);
            }
            Cut::Transpose => part.fill((0..ndim).rev().map(numbers)),
            Cut::Permute(axes) => {
                let once = |axis| axes.iter().filter(|&&other| other == axis).count() == 1;
                if axes.len() != ndim || !(0..ndim).all(once) {
                    return Err(Error::part(
                        ErrorKind::Argument,
                        format_args!("expected each axis below {ndim} once, found {axes:?}"),
                    ));
                }
                part.fill(axes.iter().map(|&axis| numbers(axis)));
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
                part.fill((0..ndim).filter(|&other| other != axis).map(numbers));
            }
            Cut::Unsqueeze { axis } => {
                if axis > ndim {
                    return Err(Error::axis(axis, ndim + 1));
                }
                let new = self.new_axis(axis);
                part.fill((0..axis).map(numbers).chain([new]).chain((axis..ndim).map(numbers)));
            }
            Cut::Reshape(expected) => reshape(*self, expected, part)?,
            Cut::Broadcast(expected) => broadcast(shape, strides, expected, part)?,
            Cut::Index(places) => offset = self.write_index(places, part)?,
        }
        Ok(offset as isize)
    }

    /// The axes behind the first one, and how far those of an index of that are away. They were measured with the whole.
    ///
    /// # Errors
    ///
    /// [`Error::Part`] for no axis, or an index that does not fit.
    #[inline(always)]
    pub(crate) fn row(&self, index: usize) -> Result<(Self, isize), Error> {
        match (self.shape, self.strides) {
            (&[extent, ref shape @ ..], &[stride, ref strides @ ..]) => {
                let offset = selected(0, index, (extent, stride))?;
                let row = Self { shape, strides, ..*self };
                // Where there is an element, its offset was measured.
                Ok((row, if row.len() == 0 { 0 } else { offset as isize }))
            }
            _ => Err(Error::axis(0, 0)),
        }
    }

    /// A new axis before this one. Any stride would do for extent 1. We choose that of a contiguous tensor, because some
    /// consumers compare it.
    fn new_axis(&self, axis: usize) -> (i64, i64) {
        match self.shape.get(axis) {
            Some(&extent) => (1, extent.max(1).wrapping_mul(self.strides[axis])),
            None => (1, 1),
        }
    }

    /// Writes the part that an index selects; returns its offset.
    fn write_index(&self, places: &[Place], part: &mut Lists<'_>) -> Result<i64, Error> {
        let (shape, strides) = (self.shape, self.strides);
        let ndim = shape.len();
        let (mut axis, mut to, mut offset) = (0, 0, 0_i64);
        let mut push = |(extent, stride)| {
            // Without space there is an axis too many among the places, which is refused.
            if let (Some(to_extent), Some(to_stride)) =
                (part.shape.get_mut(to), part.strides.get_mut(to))
            {
                (*to_extent, *to_stride) = (extent, stride);
            }
            to += 1;
        };
        for place in places {
            match *place {
                Place::New => {
                    push(self.new_axis(axis));
                    continue;
                }
                Place::Whole(count) => {
                    let end = axis.saturating_add(count).min(ndim);
                    (axis..end).for_each(|axis| push((shape[axis], strides[axis])));
                    axis = end;
                    continue;
                }
                _ if axis == ndim => return Err(Error::axis(axis, ndim)),
                Place::At(index) => {
                    let numbers = (shape[axis], strides[axis]);
                    offset = offset.wrapping_add(selected(axis, index, numbers)?);
                }
                Place::Range { first, step, count } => {
                    let (extent, stride) = (shape[axis], strides[axis]);
                    if count > 0 {
                        offset = offset.wrapping_add(selected(axis, first, (extent, stride))?);
                        // With another step than 0, as many as the indices that exist, at most.
                        let more = i64::try_from(count - 1).ok();
                        let reach = more.and_then(|more| more.checked_mul(step as i64));
                        let last = reach.and_then(|reach| reach.checked_add(first as i64));
                        let last = last.and_then(|last| usize::try_from(last).ok());
                        selected(axis, last.unwrap_or(usize::MAX), (extent, stride))?;
                        check_step(axis, step)?;
                    }
                    push((count as i64, stepped(stride, step, count as i64)));
                }
            }
            axis += 1;
        }
        (axis..ndim).for_each(|axis| push((shape[axis], strides[axis])));
        Ok(offset)
    }
}

/// The offset of an index of an axis.
#[inline]
fn selected(axis: usize, index: usize, (extent, stride): (i64, i64)) -> Result<i64, Error> {
    match i64::try_from(index) {
        Ok(inside) if inside < extent => Ok(inside.wrapping_mul(stride)),
        _ => Err(Error::part(
            ErrorKind::Index,
            format_args!("expected an index below {extent} on axis {axis}, found {index}"),
        )),
    }
}

/// With a step of 0, several indices would reach one element.
fn check_step(axis: usize, step: isize) -> Result<(), Error> {
    if step != 0 {
        return Ok(());
    }
    Err(Error::part(
        ErrorKind::Argument,
        format_args!("expected a step other than 0 on axis {axis}, found 0"),
    ))
}

/// The stride of every `step`-th element. That of an axis of one element means nothing, and may be too large for this.
fn stepped(stride: i64, step: isize, extent: i64) -> i64 {
    if extent > 1 { stride.wrapping_mul(step as i64) } else { stride }
}

fn broadcast(
    shape: &[i64],
    strides: &[i64],
    expected: &[i64],
    part: &mut Lists<'_>,
) -> Result<(), Error> {
    let refused = || {
        Err(Error::part(
            ErrorKind::Shape,
            format_args!("expected a shape that {shape:?} can be repeated to, found {expected:?}"),
        ))
    };
    let Some(front) = expected.len().checked_sub(shape.len()) else { return refused() };
    part.shape.copy_from_slice(expected);
    part.strides[..front].fill(0);
    for (axis, (&extent, &stride)) in shape.iter().zip(strides).enumerate() {
        part.strides[front + axis] = match expected[front + axis] {
            same if same == extent => stride,
            _ if extent == 1 => 0,
            _ => return refused(),
        };
    }
    Ok(())
}

// Reshaping without a copy: strides for other extents over the same elements.
// Invariant: element `i` in row-major order is the same before and after.

/// Writes the shape, with -1 resolved, and the strides with which it reaches the same elements.
fn reshape(
    whole: Layout<'_>,
    expected: &[i64],
    Lists { shape, strides }: &mut Lists<'_>,
) -> Result<(), Error> {
    shape.copy_from_slice(expected);
    resolve(whole, expected, shape)?;
    if shape.contains(&0) {
        contiguous_strides(shape, strides);
        return Ok(());
    }
    if regrouped(whole, shape, strides).is_some() {
        return Ok(());
    }
    let (shape, strides) = (whole.shape(), whole.strides());
    Err(Error::part(
        ErrorKind::Layout,
        format_args!(
            "expected strides that allow shape {expected:?} without a copy, found \
             {strides:?} for shape {shape:?}"
        ),
    ))
}

/// Writes into `shape`, the expected one, what the other extents leave for -1. It has as many elements as `whole`.
fn resolve(whole: Layout<'_>, expected: &[i64], shape: &mut [i64]) -> Result<(), Error> {
    let refused = || {
        let shape = whole.shape();
        Err(Error::part(
            ErrorKind::Shape,
            format_args!("expected a shape with the elements of {shape:?}, found {expected:?}"),
        ))
    };
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
    Ok(())
}

/// Writes strides for a shape with as many elements as `whole`, at least one; `None` if there are none.
///
/// Both lists of extents are cut into the shortest groups of equal products. The old axes of a group
/// must step like one axis, which the new ones then divide.
fn regrouped(whole: Layout<'_>, shape: &[i64], strides: &mut [i64]) -> Option<()> {
    // Axes of extent 1 step like any other. From the innermost axis out.
    let axes = whole.shape().iter().zip(whole.strides()).rev();
    let mut old = axes.map(|(&extent, &stride)| (extent, stride)).filter(|axis| axis.0 != 1);
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
    Some(())
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

    pub(crate) fn ndim(&self) -> usize {
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
