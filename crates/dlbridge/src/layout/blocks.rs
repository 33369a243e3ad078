//! The copy order for strided elements: block by block, so that neighbours in the source and in the
//! target are both handled while they are in the cache. Offsets only, no pointers.
#![forbid(unsafe_code)]

use super::Dims;

/// One axis of a copy: its extent, and its strides in the source and in the target, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    pub(crate) extent: usize,
    pub(crate) source: isize,
    pub(crate) target: isize,
}

impl Axis {
    const SINGLE: Self = Self { extent: 1, source: 1, target: 1 };
}

/// A strided layout as blocks of two axes, copied in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Blocks {
    /// Where there is an axis with smaller source strides than the columns, it is this one.
    pub(crate) rows: Axis,
    /// The innermost axis: contiguous in the target.
    pub(crate) columns: Axis,
    is_empty: bool,
    /// The other axes, in no order.
    extents: Dims,
    sources: Dims,
    targets: Dims,
    outer: usize,
}

impl Blocks {
    /// The layout must have been measured.
    pub(crate) fn new(shape: &[i64], strides: &[i64]) -> Self {
        let is_empty = super::is_empty(shape);
        let mut blocks = Self {
            rows: Axis::SINGLE,
            columns: Axis::SINGLE,
            is_empty,
            extents: Dims::zeros(shape.len()),
            sources: Dims::zeros(shape.len()),
            targets: Dims::zeros(shape.len()),
            outer: 0,
        };
        if !is_empty {
            blocks.merge(shape, strides);
            blocks.columns = blocks.take(0);
            let is_nearer =
                |of: &i64| of.unsigned_abs() < blocks.columns.source.unsigned_abs() as u64;
            let sources = blocks.sources[..blocks.outer].iter().enumerate();
            let nearest =
                sources.filter(|(_, of)| is_nearer(of)).min_by_key(|(_, of)| of.unsigned_abs());
            blocks.rows = blocks.take(nearest.map_or(0, |(axis, _)| axis));
        }
        blocks
    }

    /// Lists the axes, innermost first. Axes that step like one axis are merged.
    fn merge(&mut self, shape: &[i64], strides: &[i64]) {
        let mut target = 1;
        for (&extent, &stride) in
            shape.iter().zip(strides).rev().filter(|(extent, _)| **extent != 1)
        {
            let last = self.outer.checked_sub(1);
            let continued =
                |last: &usize| self.sources[*last].checked_mul(self.extents[*last]) == Some(stride);
            if let Some(last) = last.filter(continued) {
                self.extents[last] *= extent;
            } else {
                (self.extents[self.outer], self.sources[self.outer]) = (extent, stride);
                self.targets[self.outer] = target;
                self.outer += 1;
            }
            target *= extent;
        }
    }

    /// Removes an axis from the others; without one, an axis of extent 1.
    fn take(&mut self, axis: usize) -> Axis {
        if axis >= self.outer {
            return Axis::SINGLE;
        }
        let taken = self.axis(axis);
        self.outer -= 1;
        for list in [&mut self.extents, &mut self.sources, &mut self.targets] {
            list.copy_within(axis + 1..=self.outer, axis);
        }
        taken
    }

    fn axis(&self, axis: usize) -> Axis {
        let [extent, source, target] =
            [&self.extents, &self.sources, &self.targets].map(|list| list[axis] as isize);
        Axis { extent: extent as usize, source, target }
    }

    /// Calls `copy` with the source's and the target's offset of each block.
    #[inline(never)]
    pub(crate) fn for_each(&self, copy: &mut dyn FnMut(isize, isize)) {
        if self.is_empty {
            return;
        }
        let mut index = Dims::zeros(self.outer);
        let (mut source, mut target) = (0, 0);
        loop {
            copy(source, target);
            let mut axis = 0;
            loop {
                if axis == self.outer {
                    return;
                }
                let Axis { extent, source: step, target: target_step } = self.axis(axis);
                index[axis] += 1;
                if index[axis] as usize != extent {
                    source += step;
                    target += target_step;
                    break;
                }
                index[axis] = 0;
                source -= step * (extent as isize - 1);
                target -= target_step * (extent as isize - 1);
                axis += 1;
            }
        }
    }
}

/// The axes of a layout in the order of its memory, the largest strides first: for work on all
/// elements in any order. Axes of extent 1 are left out.
pub(crate) fn by_stride(shape: &[i64], strides: &[i64]) -> (Dims, Dims) {
    let ndim = shape.iter().filter(|&&extent| extent != 1).count();
    let (mut extents, mut steps) = (Dims::zeros(ndim), Dims::zeros(ndim));
    let axes = shape.iter().zip(strides).filter(|(extent, _)| **extent != 1);
    for (done, (&extent, &stride)) in axes.enumerate() {
        // Each axis goes in front of those with smaller strides.
        let at =
            steps[..done].partition_point(|of: &i64| of.unsigned_abs() >= stride.unsigned_abs());
        for (list, number) in [(&mut extents, extent), (&mut steps, stride)] {
            list.copy_within(at..done, at + 1);
            list[at] = number;
        }
    }
    (extents, steps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::contiguous_strides;

    /// The source's offset of each element of the target, by the blocks.
    fn by_blocks(shape: &[i64], strides: &[i64]) -> Vec<isize> {
        let blocks = Blocks::new(shape, strides);
        let mut found = vec![isize::MIN; shape.iter().product::<i64>() as usize];
        blocks.for_each(&mut |source, target| {
            for row in 0..blocks.rows.extent as isize {
                for column in 0..blocks.columns.extent as isize {
                    let of = |source, rows, columns| source + row * rows + column * columns;
                    let at = of(target, blocks.rows.target, blocks.columns.target);
                    assert_eq!(found[at as usize], isize::MIN, "each element is copied once");
                    found[at as usize] = of(source, blocks.rows.source, blocks.columns.source);
                }
            }
        });
        found
    }

    fn by_index(shape: &[i64], strides: &[i64]) -> Vec<isize> {
        let mut contiguous = vec![0; shape.len()];
        contiguous_strides(shape, &mut contiguous);
        let len = shape.iter().product::<i64>();
        let offset = |number: i64| {
            let axes = shape.iter().zip(strides).zip(&contiguous);
            axes.map(|((extent, stride), step)| number / step % extent * stride).sum::<i64>()
                as isize
        };
        (0..len).map(offset).collect()
    }

    #[test]
    fn every_element_is_copied_once_from_its_place() {
        for (shape, strides) in [
            (&[][..], &[][..]),
            (&[5], &[-3]),
            (&[3, 4], &[1, 3]),
            (&[3, 0, 4], &[1, i64::MAX, 3]),
            (&[2, 3, 4], &[1, 2, 6]),
            (&[2, 3, 4], &[12, 1, 3]),
            (&[2, 3, 4], &[0, -4, 1]),
            (&[2, 1, 3, 2, 2], &[60, 7, -2, 6, 0]),
            (&[3, 3, 3], &[9, 3, 1]),
            (&[1, 1], &[i64::MAX, i64::MIN]),
        ] {
            assert_eq!(
                by_blocks(shape, strides),
                by_index(shape, strides),
                "{shape:?} {strides:?}"
            );
        }
    }

    #[test]
    fn rows_are_the_axis_that_is_nearest_in_the_source() {
        let blocks = Blocks::new(&[10, 20, 30], &[1, 301, 10]);
        assert_eq!(blocks.columns, Axis { extent: 30, source: 10, target: 1 });
        assert_eq!(blocks.rows, Axis { extent: 10, source: 1, target: 600 });
    }

    #[test]
    fn contiguous_axes_are_one() {
        let blocks = Blocks::new(&[2, 3, 4], &[24, 4, 1]);
        assert_eq!(blocks.columns, Axis { extent: 12, source: 1, target: 1 });
        assert_eq!(blocks.rows, Axis { extent: 2, source: 24, target: 12 });
    }
}
