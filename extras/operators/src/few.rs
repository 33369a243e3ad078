//! `Few`: a list without the heap, unless it is long.
//! Invariant: the list is in `many` if that is not empty, else in the first `len` places of `few`, which are initialised.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

/// A list that needs no heap up to `N` values.
#[derive(Debug)]
pub(crate) struct Few<T, const N: usize> {
    few: [MaybeUninit<T>; N],
    len: usize,
    many: Vec<T>,
}

/// Extents, or strides.
pub(crate) type Numbers = Few<i64, 8>;

impl Numbers {
    /// A list of zeros.
    #[inline]
    pub(crate) fn zeros(len: usize) -> Self {
        let few = [const { MaybeUninit::new(0) }; 8];
        let many = if len <= few.len() { Vec::new() } else { vec![0; len] };
        Self { few, len, many }
    }

    /// The strides of contiguous elements, in row-major order, each times `unit`.
    pub(crate) fn contiguous(shape: &[i64], unit: i64) -> Self {
        let mut strides = Self::zeros(shape.len());
        make_contiguous(shape, &mut strides, unit);
        strides
    }
}

/// Writes the strides of contiguous elements, in row-major order, each times `unit`. Too large ones wrap: no tensor has them.
pub(crate) fn make_contiguous(shape: &[i64], strides: &mut [i64], unit: i64) {
    let mut next = unit;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.wrapping_mul(extent.max(1));
    }
}

impl<T: Copy, const N: usize> Few<T, N> {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { few: [const { MaybeUninit::uninit() }; N], len: 0, many: Vec::new() }
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, value: T) {
        match self.few.get_mut(self.len) {
            Some(place) => {
                place.write(value);
                self.len += 1;
            }
            // Without the value, which would go through memory.
            None => *self.longer() = value,
        }
    }

    /// One place more, in `many`.
    #[cold]
    fn longer(&mut self) -> &mut T {
        const { assert!(N > 0) };
        let last = self[self.deref().len() - 1];
        if self.many.is_empty() {
            self.many = self.to_vec();
        }
        self.many.push(last);
        let end = self.many.len() - 1;
        &mut self.many[end]
    }
}

impl<T: Copy, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        if !self.many.is_empty() {
            return &self.many;
        }
        // SAFETY: so many places are initialised (the invariant; R8).
        unsafe { std::slice::from_raw_parts(self.few.as_ptr().cast(), self.len) }
    }
}

impl<T: Copy, const N: usize> DerefMut for Few<T, N> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        if !self.many.is_empty() {
            return &mut self.many;
        }
        // SAFETY: so many places are initialised (the invariant; R8).
        unsafe { std::slice::from_raw_parts_mut(self.few.as_mut_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Few, Numbers};

    #[test]
    fn a_list_of_any_length_keeps_its_order_and_can_be_changed() {
        let mut list = Few::<usize, 3>::new();
        assert!(list.is_empty());
        for count in 1..9 {
            list.push(count);
            list.iter_mut().for_each(|value| *value += 10);
            let expected: Vec<_> = (1..=count).map(|at| at + 10 * (count - at + 1)).collect();
            assert_eq!(*list, expected[..]);
        }
    }

    #[test]
    fn a_list_of_zeros_has_its_length() {
        for len in 0..12 {
            assert_eq!(*Numbers::zeros(len), vec![0; len][..]);
        }
        assert_eq!(*Numbers::contiguous(&[2, 0, 3], 4), [12, 12, 4]);
    }
}
