//! A layout as strides, and as the list of the elements that it selects.
//! Invariant: each list is computed from the previous list, never from strides.

use dlbridge::{ArcTensor, Parts, Tensor};

use crate::input::Input;
use crate::model;

/// A selection of a contiguous array, in any order. An element is identified by its index in that
/// array.
pub(crate) struct Shown {
    pub(crate) shape: Vec<i64>,
    pub(crate) strides: Vec<i64>,
    /// The offset of element `[0, 0, ...]`.
    pub(crate) offset: i64,
    /// The selected elements, in row-major order.
    pub(crate) places: Vec<i64>,
    /// The number of elements of that array.
    pub(crate) owner: i64,
    /// What the library's own verbs make of such an array.
    pub(crate) part: ArcTensor,
}

impl Shown {
    /// All elements of an array with a small shape.
    pub(crate) fn contiguous(shape: Vec<i64>) -> Self {
        let strides = model::contiguous(&shape).into_iter().flatten().collect();
        let owner = shape.iter().product();
        let places: Vec<i64> = (0..owner).collect();
        let part = Tensor::from(places.clone()).reshape(&shape).expect("as many elements");
        Self { shape, strides, offset: 0, places, owner, part: part.into_shared() }
    }

    /// Slices, permutes, reverses, broadcasts or indexes.
    pub(crate) fn step(&mut self, input: &mut Input<'_>) {
        let ndim = self.shape.len();
        let axis = input.below(ndim.max(1));
        match input.below(5) {
            0 if ndim > 0 => self.slice(axis, input),
            1 if ndim > 1 => self.swap(axis, input.below(ndim)),
            2 if ndim > 0 => self.turn(axis),
            3 if ndim < 9 && self.places.len() < 500 => {
                let extent = if input.rarely(2) { input.below(4) as i64 } else { 1 };
                self.broadcast(axis, extent);
            }
            4 if ndim > 0 && self.shape[axis] > 0 => {
                let at = input.below(self.shape[axis] as usize);
                self.pick(axis, at);
            }
            _ => {}
        }
    }

    /// Computes the list of a new shape: `back` maps an index of the new shape to one of the old.
    fn show(&mut self, shape: Vec<i64>, back: impl Fn(&[usize]) -> Vec<usize>) {
        let len = shape.iter().product::<i64>() as usize;
        let place = |i| {
            let from = back(&model::index_of(i, &shape));
            let axes = from.iter().zip(&self.shape);
            self.places[axes.fold(0, |flat, (&i, &extent)| flat * extent as usize + i)]
        };
        self.places = (0..len).map(place).collect();
        self.shape = shape;
    }

    fn slice(&mut self, axis: usize, input: &mut Input<'_>) {
        let extent = self.shape[axis] as usize;
        let start = input.below(extent + 1);
        let end = start + input.below(extent - start + 1);
        let (step, downwards) = (1 + input.below(3), input.rarely(2));
        let kept: Vec<usize> = if downwards {
            (start..end).rev().step_by(step).collect()
        } else {
            (start..end).step_by(step).collect()
        };
        let sign = if downwards { -1 } else { 1 };
        let part = self.part.slice(axis, start..end);
        self.part = part.and_then(|part| part.step_by(axis, sign * step as isize)).expect("inside");
        let first = kept.first().map_or(0, |&first| first as i64);
        self.offset += first * self.strides[axis];
        self.strides[axis] *= if downwards { -(step as i64) } else { step as i64 };
        let mut shape = self.shape.clone();
        shape[axis] = kept.len() as i64;
        self.show(shape, |index| with(index, axis, kept[index[axis]]));
    }

    fn swap(&mut self, axis: usize, other: usize) {
        let mut axes: Vec<usize> = (0..self.shape.len()).collect();
        axes.swap(axis, other);
        self.part = self.part.permute(&axes).expect("each axis once");
        self.strides.swap(axis, other);
        let mut shape = self.shape.clone();
        shape.swap(axis, other);
        self.show(shape, |index| {
            let mut from = index.to_vec();
            from.swap(axis, other);
            from
        });
    }

    fn turn(&mut self, axis: usize) {
        self.part = self.part.flip(axis).expect("an axis");
        let last = self.shape[axis] - 1;
        if last >= 0 {
            self.offset += last * self.strides[axis];
        }
        self.strides[axis] *= -1;
        let shape = self.shape.clone();
        self.show(shape, |index| with(index, axis, last as usize - index[axis]));
    }

    fn broadcast(&mut self, axis: usize, extent: i64) {
        self.strides.insert(axis, 0);
        let mut shape = self.shape.clone();
        shape.insert(axis, extent);
        let part = self.part.unsqueeze(axis);
        self.part = part.and_then(|part| part.broadcast_to(&shape)).expect("one axis of 1");
        self.show(shape, |index| {
            let mut from = index.to_vec();
            from.remove(axis);
            from
        });
    }

    fn pick(&mut self, axis: usize, at: usize) {
        self.part = self.part.select(axis, at).expect("inside");
        self.offset += at as i64 * self.strides.remove(axis);
        let mut shape = self.shape.clone();
        shape.remove(axis);
        self.show(shape, |index| {
            let mut from = index.to_vec();
            from.insert(axis, at);
            from
        });
    }
}

/// The index with another value along one axis.
fn with(index: &[usize], axis: usize, at: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = at;
    index
}
