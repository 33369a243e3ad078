//! Row-major iteration over a layout as straight runs: offsets only, no pointers.
//! Invariant: the runs cover exactly the elements of the layout, each index once.
#![forbid(unsafe_code)]

#[cfg(feature = "rayon")]
use std::ops::Range;

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
    /// The runs `next..end` are left.
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

    /// The start of a run, by its number.
    #[inline]
    fn start_of(&self, run: usize) -> isize {
        let block = block_start(self.shape, self.strides, run / self.rows);
        block + (run % self.rows) as isize * self.row_step
    }

    /// The offset of an element, by its number.
    pub(crate) fn offset(&self, number: usize) -> isize {
        self.start_of(number / self.run.len) + (number % self.run.len) as isize * self.run.step
    }
}

/// Elements by their numbers in row-major order, for loops that threads share.
#[cfg(feature = "rayon")]
impl<'a> Runs<'a> {
    /// The runs of a range of a layout's elements: a piece of one run, whole runs, a piece of the next.
    ///
    /// The layout must have been measured, and the range lie within its `len` elements.
    pub(crate) fn within(
        shape: &'a [i64],
        strides: &'a [i64],
        len: usize,
        range: Range<usize>,
    ) -> (Run, Self, Run) {
        let mut whole = Self::new(shape, strides, len);
        let none = Run { len: 0, ..whole.run };
        if range.is_empty() {
            whole.end = 0;
            return (none, whole, none);
        }
        let run_len = whole.run.len;
        let (first, skipped) = (range.start / run_len, range.start % run_len);
        let (last, taken) = (range.end / run_len, range.end % run_len);
        if first == last {
            whole.end = 0;
            return (whole.piece(first, skipped..taken), whole, none);
        }
        let front = if skipped > 0 { whole.piece(first, skipped..run_len) } else { none };
        let back = if taken > 0 { whole.piece(last, 0..taken) } else { none };
        whole.next = first + usize::from(skipped > 0);
        whole.end = last;
        if whole.next < last {
            whole.left = whole.rows - whole.next % whole.rows;
            whole.run.start = whole.start_of(whole.next);
        }
        (front, whole, back)
    }

    fn piece(&self, run: usize, range: Range<usize>) -> Run {
        let start = self.start_of(run) + range.start as isize * self.run.step;
        Run { start, len: range.len(), step: self.run.step }
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
        Some(Run { start: self.start_of(self.end), ..self.run })
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

    #[cfg(feature = "rayon")]
    #[test]
    fn a_range_of_elements_is_walked_from_and_to_the_middle_of_a_run() {
        for (shape, strides) in [
            (&[2, 1, 2, 2, 2][..], &[100, 9, 40, 10, 3][..]),
            (&[3, 2, 4], &[8, 4, 1]),
            (&[4, 3], &[-3, 0]),
            (&[5], &[-2]),
            (&[], &[]),
            (&[2, 0], &[1, 1]),
        ] {
            let all = offsets(shape, strides);
            for (start, end) in (0..=all.len()).flat_map(|end| (0..=end).map(move |i| (i, end))) {
                let (front, runs, back) = Runs::within(shape, strides, all.len(), start..end);
                assert!(runs.clone().rev().eq(runs.clone().collect::<Vec<_>>().into_iter().rev()));
                let found: Vec<isize> = std::iter::once(front)
                    .chain(runs)
                    .chain([back])
                    .flat_map(|run| (0..run.len as isize).map(move |i| run.start + i * run.step))
                    .collect();
                assert_eq!(found, all[start..end], "{shape:?} {strides:?} {start}..{end}");
            }
            let numbered = Runs::new(shape, strides, all.len());
            assert!(all.iter().enumerate().all(|(number, &at)| numbered.offset(number) == at));
        }
    }

    #[test]
    fn ndim_0_is_one_element_and_an_empty_axis_none() {
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
