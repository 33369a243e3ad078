//! Row-major iteration over a layout as straight runs: offsets only, no pointers.
//! Invariant: the runs cover exactly the elements of the layout, each index once.
#![forbid(unsafe_code)]

/// A straight piece of a layout: `len` elements, `step` apart, from `start` on (all in elements).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: isize,
    pub(crate) len: usize,
    pub(crate) step: isize,
}

/// The runs of a layout, in row-major order, from both ends.
///
/// Runs are numbered. Runs one step apart form a block; only the first number of a block is converted
/// to an index. The state is a few numbers, which a loop keeps in registers.
#[derive(Clone, Debug)]
pub(crate) struct Runs<'a> {
    /// The next run. All runs have its length and step.
    run: Run,
    /// The runs left: the number of the next one, and one more than that of the last.
    next: usize,
    end: usize,
    /// The runs left in the next one's block.
    left: usize,
    /// The runs of a block, and the elements from one to the next.
    rows: usize,
    row_step: isize,
    /// The axes around a block.
    shape: &'a [i64],
    strides: &'a [i64],
}

impl<'a> Runs<'a> {
    /// The layout must have been measured by [`crate::layout::span`].
    #[inline]
    pub(crate) fn new(shape: &'a [i64], strides: &'a [i64], len: usize) -> Self {
        let (run, step, outer) = innermost(shape, strides);
        let (rows, row_step, outer) = innermost(&shape[..outer], &strides[..outer]);
        Self {
            run: Run { start: 0, len: run, step },
            next: 0,
            // no elements: an axis is empty, and there are no runs
            end: if len == 0 { 0 } else { len / run },
            left: rows,
            rows,
            row_step,
            shape: &shape[..outer],
            strides: &strides[..outer],
        }
    }

    /// How many elements each run has, where there is a run.
    #[inline]
    pub(crate) fn run_len(&self) -> usize {
        self.run.len
    }

    /// The distance between two elements of a run.
    #[inline]
    pub(crate) fn step(&self) -> isize {
        self.run.step
    }

    /// How many runs are left.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.end - self.next
    }
}

/// The innermost axes that step like one axis: its extent and stride, and how many axes are left
/// around it. Axes of extent 1 step like any other.
#[inline]
fn innermost(shape: &[i64], strides: &[i64]) -> (usize, isize, usize) {
    let (mut extent, mut step, mut outer) = (1, 1, shape.len());
    while let Some(axis) = outer.checked_sub(1) {
        if extent == 1 {
            step = if shape[axis] == 1 { step } else { strides[axis] };
        } else if shape[axis] != 1 && Some(strides[axis]) != i64::checked_mul(step, extent) {
            break;
        }
        extent *= shape[axis];
        outer = axis;
    }
    (extent as usize, step as isize, outer)
}

/// The start of a block. Out of line, without a pointer to the iterator, which thus stays in registers.
#[cold]
#[inline(never)]
fn block_start(shape: &[i64], strides: &[i64], block: usize) -> isize {
    let (mut start, mut block) = (0, block as i64);
    for (&extent, &stride) in shape.iter().zip(strides).rev() {
        start += block % extent * stride;
        block /= extent;
    }
    start as isize
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        if self.next == self.end {
            return None;
        }
        let run = self.run;
        self.next += 1;
        self.left -= 1;
        if self.left > 0 {
            self.run.start += self.row_step;
        } else if self.next < self.end {
            self.left = self.rows;
            self.run.start = block_start(self.shape, self.strides, self.next / self.rows);
        }
        Some(run)
    }
}

impl DoubleEndedIterator for Runs<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Run> {
        if self.next == self.end {
            return None;
        }
        self.end -= 1;
        let start = block_start(self.shape, self.strides, self.end / self.rows);
        let row = (self.end % self.rows) as isize;
        Some(Run { start: start + row * self.row_step, ..self.run })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs<'a>(shape: &'a [i64], strides: &'a [i64]) -> Runs<'a> {
        Runs::new(shape, strides, shape.iter().product::<i64>() as usize)
    }

    fn offsets(shape: &[i64], strides: &[i64]) -> Vec<isize> {
        let runs = runs(shape, strides);
        runs.flat_map(|run| (0..run.len as isize).map(move |i| run.start + i * run.step)).collect()
    }

    #[test]
    fn a_transposed_array_is_walked_by_rows() {
        assert_eq!(offsets(&[3, 2], &[1, 3]), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn axes_that_step_like_one_are_one_run() {
        let mut runs = runs(&[2, 1, 3], &[-3, 77, -1]);
        assert_eq!((runs.run_len(), runs.step(), runs.left()), (6, -1, 1));
        assert_eq!(runs.next(), Some(Run { start: 0, len: 6, step: -1 }));
        assert_eq!(runs.next(), None);
    }

    #[test]
    fn blocks_are_walked_one_after_the_other() {
        let (shape, strides) = ([2, 1, 2, 2, 2], [100, 9, 40, 10, 3]);
        let forth: Vec<_> = runs(&shape, &strides).map(|run| run.start).collect();
        assert_eq!(forth, [0, 10, 40, 50, 100, 110, 140, 150]);
        let mut back: Vec<_> = runs(&shape, &strides).rev().map(|run| run.start).collect();
        back.reverse();
        assert_eq!(back, forth);
    }

    #[test]
    fn rank_0_is_one_element_and_an_empty_axis_none() {
        assert_eq!(offsets(&[], &[]), [0]);
        assert_eq!(offsets(&[1, 1], &[5, 7]), [0]);
        assert_eq!(offsets(&[3, 0], &[5, 7]), [0_isize; 0]);
        assert_eq!(offsets(&[0, 3], &[5, 7]), [0_isize; 0]);
        assert_eq!(runs(&[2, 0, 3], &[5, 7, 1]).next_back(), None);
    }

    #[test]
    fn a_broadcast_axis_repeats_its_element() {
        assert_eq!(offsets(&[2, 2], &[0, 5]), [0, 5, 0, 5]);
    }
}
