//! The bytes that the elements of a tensor occupy, and whether two tensors have a byte in common.

/// The bytes of a tensor: those of a range of addresses that are in both of two repeated patterns.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// The address of the element with the lowest address. Not 0.
    pub start: usize,
    /// The address behind the last byte.
    pub end: usize,
    /// The pattern of single elements, by which the planes of a picture are known to have no byte in common.
    pub fine: Comb,
    /// The pattern of what lies within one step of the outermost axis, by which the left and the right half
    /// of a matrix are known to have no byte in common.
    pub coarse: Comb,
}

/// A pattern that repeats: `width` bytes from every multiple of `step` bytes on, counted from the start. With a
/// step of 0 it occurs once.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comb {
    /// The bytes from one repetition to the next.
    pub step: usize,
    /// The bytes of one repetition.
    pub width: usize,
}

impl Bytes {
    /// The bytes of elements of `size` bytes from an address on, with strides in elements; `None` without
    /// elements. The lists were validated.
    #[must_use]
    #[inline]
    pub fn of(data: usize, shape: &[i64], strides: &[i64], size: usize) -> Option<Self> {
        let (mut low, mut high, mut len) = (0_i64, 0_i64, 1_i64);
        // Validation bounds the products and sums of a tensor that has elements.
        for (&extent, &stride) in shape.iter().zip(strides) {
            if extent == 0 {
                return None;
            }
            len = len.wrapping_mul(extent);
            let offset = (extent - 1).wrapping_mul(stride);
            if offset < 0 {
                low = below(low, offset);
            } else {
                high = high.wrapping_add(offset);
            }
        }
        let at =
            |offset: i64| data.wrapping_add_signed((offset as isize).wrapping_mul(size as isize));
        let is_dense = high - low + 1 == len;
        let (start, end) = (at(low), at(high).wrapping_add(size));
        if is_dense {
            let whole = Comb { step: 0, width: end.wrapping_sub(start) };
            return Some(Self { start, end, fine: whole, coarse: whole });
        }
        let [fine, coarse] = combs(shape, strides, size);
        Some(Self { start, end, fine, coarse })
    }

    /// All bytes from the start to the end.
    #[cold]
    pub(crate) fn without_gaps(self) -> Self {
        let whole = Comb { step: 0, width: self.end.wrapping_sub(self.start) };
        Self { fine: whole, coarse: whole, ..self }
    }

    /// Whether an element of one may share a byte with an element of the other. Never false if one
    /// does; true for some interleaved parts whose steps have no common divisor.
    #[must_use]
    #[inline]
    pub fn overlaps(&self, other: &Self) -> bool {
        if self.end <= other.start || other.end <= self.start {
            return false;
        }
        let distance = other.start as i128 - self.start as i128;
        self.fine.meets(other.fine, distance) && self.coarse.meets(other.coarse, distance)
    }
}

impl Comb {
    /// A pattern that covers both, perhaps more.
    #[must_use]
    #[inline]
    pub fn joined(self, other: Self) -> Self {
        let step = if self.step == other.step { self.step } else { gcd(self.step, other.step) };
        Self { step, width: self.width.max(other.width) }
    }

    /// Whether a borrow of this pattern that starts in `first..=last` may share a byte with `bytes`.
    #[must_use]
    #[inline]
    pub fn meets_from(self, first: usize, last: usize, bytes: &Bytes) -> bool {
        let other = bytes.coarse;
        let step = gcd(self.step, other.step) as i128;
        if step == 0 {
            return true;
        }
        // Those from `top - length` to `top` are the distances at which they meet; a multiple of the step is one.
        let length = (last - first) as i128 + self.width as i128 + other.width as i128 - 2;
        let top = last as i128 - bytes.start as i128 + self.width as i128 - 1;
        top.rem_euclid(step) <= length
    }

    /// Whether a repetition of the other comb, which starts at a distance, may share a byte with one of this.
    fn meets(self, other: Self, distance: i128) -> bool {
        let step = gcd(self.step, other.step);
        if step == 0 {
            return true;
        }
        let at = distance.rem_euclid(step as i128) as usize;
        at < self.width || step - at < other.width
    }
}

/// Rare: as a function, it is a branch where the compiler would compute both sums.
#[cold]
fn below(low: i64, offset: i64) -> i64 {
    low.wrapping_add(offset)
}

/// The fine and the coarse comb of elements that are not dense.
#[cold]
fn combs(shape: &[i64], strides: &[i64], size: usize) -> [Comb; 2] {
    let axes = || {
        let axes = shape.iter().zip(strides).filter(|&(&extent, _)| extent > 1);
        axes.map(|(&extent, stride)| (extent as usize - 1, stride.unsigned_abs() as usize * size))
    };
    let fine = axes().fold(0, |step, (_, stride)| gcd(step, stride));
    let coarse = axes().map(|(_, stride)| stride).max().unwrap_or(0);
    let inner = axes().filter(|&(_, stride)| stride < coarse).map(|(last, stride)| last * stride);
    [Comb { step: fine, width: size }, Comb { step: coarse, width: inner.sum::<usize>() + size }]
}

fn gcd(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use crate::{Parts, Tensor};

    use super::*;

    /// Every layout of up to two axes over a few bytes, compared with the set of bytes.
    #[test]
    fn overlap_agrees_with_the_bytes_of_each_element() {
        let buffer = [0_u8; 64];
        let middle = buffer.as_ptr().addr() + 32;
        let mut layouts = Vec::new();
        for size in [1, 2, 4] {
            for at in [0, 1, 2, 3, 5] {
                for extents in [[1, 1], [3, 1], [2, 3], [3, 2]] {
                    for strides in [[1, 1], [2, 1], [-2, 1], [0, 2], [3, -1], [0, 0]] {
                        layouts.push((size, middle + at, extents, strides));
                    }
                }
            }
        }
        let mut disjoint = 0;
        let all: Vec<_> = layouts.iter().map(|&layout| measured(layout)).collect();
        for (a, bytes_of_a) in &all {
            for (b, bytes_of_b) in &all {
                let is_shared = bytes_of_a.iter().any(|byte| bytes_of_b.contains(byte));
                assert_eq!(a.overlaps(b), b.overlaps(a));
                assert!(a.overlaps(b) || !is_shared, "{a:?} {b:?}");
                disjoint += usize::from(!a.overlaps(b) && a.end > b.start && b.end > a.start);
            }
        }
        assert!(disjoint > 100, "interleaved parts are told apart");
    }

    type Layout = (usize, usize, [i64; 2], [i64; 2]);

    fn measured((size, data, extents, strides): Layout) -> (Bytes, Vec<usize>) {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for i in 0..extents[0] {
            for j in 0..extents[1] {
                let offset = (i * strides[0] + j * strides[1]) as isize * size as isize;
                let start = data.wrapping_add_signed(offset);
                starts.push(start);
                bytes.extend(start..start + size);
            }
        }
        let start = *starts.iter().min().expect("an element");
        let end = starts.iter().max().expect("an element") + size;
        let [fine, coarse] = combs(&extents, &strides, size);
        (Bytes { start, end, fine, coarse }, bytes)
    }

    #[test]
    fn a_tensor_is_measured_from_its_lowest_to_its_highest_byte() {
        let tensor = Tensor::from(vec![0_i32; 12]).reshape([3, 4]).unwrap();
        let start = tensor.data_ptr().addr();
        let bytes = |tensor: &Tensor| {
            Bytes::of(tensor.data_ptr().addr(), tensor.shape(), tensor.strides(), 4)
        };
        let all = Comb { step: 0, width: 48 };
        let whole = Bytes { start, end: start + 48, fine: all, coarse: all };
        assert_eq!(bytes(&tensor), Some(whole));
        let column = tensor.select(1, 1).unwrap().flip(0).unwrap();
        let one = Comb { step: 16, width: 4 };
        let middle = Bytes { start: start + 4, end: start + 40, fine: one, coarse: one };
        assert_eq!(bytes(&column), Some(middle));
        assert_eq!(bytes(&column.slice(0, ..0).unwrap()), None);
        assert_eq!(Bytes::of(start, &[], &[], 4).map(|bytes| bytes.end), Some(start + 4));
    }
}
