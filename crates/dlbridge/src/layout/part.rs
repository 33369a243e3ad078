//! Parts of a measured layout: numbers only. `raw/descriptor/part.rs` applies them to memory.
//! Invariant: each element of a part is an element of the whole, `offset` away from its first element.
#![forbid(unsafe_code)]

use super::reshape::reshaped;
use super::{Dims, Layout, OwnedLayout};
use crate::{Error, ErrorKind};

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
