//! Walks a layout in row-major order, as few straight runs as it allows.
//! Offsets only: no pointers, no elements.
//! Invariant: the offsets given are exactly those of the layout's elements, each index once.
#![forbid(unsafe_code)]

use crate::dims::Dims;

/// A straight piece of a layout: `len` elements, `step` apart, from `start` on (all in elements).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: isize,
    pub(crate) len: usize,
    pub(crate) step: isize,
}

/// The runs of a layout, in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    /// The run to give next; `None` after the last.
    next: Option<Run>,
    /// The axes around the run; none for a layout that is one run.
    outer: Option<Odometer>,
}

#[derive(Clone, Debug)]
struct Odometer {
    shape: Dims,
    strides: Dims,
    index: Dims,
}

impl Runs {
    /// The layout must have been measured by [`crate::layout::span`].
    #[inline]
    pub(crate) fn new(shape: &[i64], strides: &[i64], contiguous: bool) -> Self {
        if contiguous {
            let len = shape.iter().product::<i64>() as usize;
            let run = Run { start: 0, len, step: 1 };
            return Self { next: (len != 0).then_some(run), outer: None };
        }
        Self::of_strided(shape, strides)
    }

    fn of_strided(shape: &[i64], strides: &[i64]) -> Self {
        if shape.contains(&0) {
            return Self { next: None, outer: None };
        }
        let (shape, strides) = merge_axes(shape, strides);
        let Some(last) = shape.len().checked_sub(1) else {
            return Self { next: Some(Run { start: 0, len: 1, step: 1 }), outer: None };
        };
        let run = Run { start: 0, len: shape[last] as usize, step: strides[last] as isize };
        let outer = (last > 0).then(|| Odometer {
            shape: Dims::from(&shape[..last]),
            strides: Dims::from(&strides[..last]),
            index: Dims::zeros(last),
        });
        Self { next: Some(run), outer }
    }
}

/// Drops axes of extent 1 and joins neighbours that step like one axis.
fn merge_axes(shape: &[i64], strides: &[i64]) -> (Dims, Dims) {
    let (mut extents, mut steps) = (Dims::zeros(shape.len()), Dims::zeros(shape.len()));
    let mut kept = 0;
    for (&extent, &stride) in shape.iter().zip(strides).filter(|&(&extent, _)| extent != 1) {
        if kept > 0 && Some(steps[kept - 1]) == stride.checked_mul(extent) {
            extents[kept - 1] *= extent;
            steps[kept - 1] = stride;
        } else {
            (extents[kept], steps[kept]) = (extent, stride);
            kept += 1;
        }
    }
    (Dims::from(&extents[..kept]), Dims::from(&steps[..kept]))
}

impl Odometer {
    /// The distance to the next index's element, or `None` after the last.
    fn advance(&mut self) -> Option<isize> {
        let mut distance = 0_i64;
        for axis in (0..self.shape.len()).rev() {
            self.index[axis] += 1;
            if self.index[axis] < self.shape[axis] {
                return Some((distance + self.strides[axis]) as isize);
            }
            self.index[axis] = 0;
            distance -= (self.shape[axis] - 1) * self.strides[axis];
        }
        None
    }
}

impl Iterator for Runs {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let run = self.next?;
        self.next = self
            .outer
            .as_mut()
            .and_then(Odometer::advance)
            .map(|distance| Run { start: run.start + distance, ..run });
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(shape: &[i64], strides: &[i64]) -> Vec<isize> {
        let runs = Runs::new(shape, strides, crate::layout::is_contiguous(shape, strides));
        runs.flat_map(|run| (0..run.len as isize).map(move |i| run.start + i * run.step)).collect()
    }

    #[test]
    fn a_transposed_array_is_walked_by_rows() {
        assert_eq!(offsets(&[3, 2], &[1, 3]), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn axes_that_step_like_one_are_one_run() {
        let mut runs = Runs::new(&[2, 1, 3], &[-3, 77, -1], false);
        assert_eq!(runs.next(), Some(Run { start: 0, len: 6, step: -1 }));
        assert_eq!(runs.next(), None);
    }

    #[test]
    fn rank_0_is_one_element_and_an_empty_axis_none() {
        assert_eq!(offsets(&[], &[]), [0]);
        assert_eq!(offsets(&[3, 0], &[5, 7]), [0_isize; 0]);
    }

    #[test]
    fn a_broadcast_axis_repeats_its_element() {
        assert_eq!(offsets(&[2, 2], &[0, 5]), [0, 5, 0, 5]);
    }
}
