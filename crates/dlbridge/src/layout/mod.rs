//! Arithmetic on shapes and strides: counts, spans, contiguity, overlap.

mod arithmetic;
mod blocks;
mod measured;
mod part;
mod range;
mod runs;
mod shape;
pub(crate) mod small;

use std::ops::{Deref, DerefMut};

#[cfg(any(feature = "arrow-58", feature = "arrow-59", feature = "arrow-60"))]
pub(crate) use self::arithmetic::extent;
#[cfg(any(feature = "burn-0_22", feature = "burn-flex-0_22", feature = "candle-core-0_11"))]
pub(crate) use self::arithmetic::extents;
pub(crate) use self::arithmetic::{Size, count};
pub use self::arithmetic::{
    Span, contiguous_strides, first_gap, is_column_major, is_contiguous, is_empty, may_overlap,
    nbytes, span,
};
pub(crate) use self::blocks::{Axis, Blocks, by_stride};
pub use self::measured::Layout;
pub(crate) use self::measured::{Lists, OwnedLayout};
pub use self::part::Place;
pub(crate) use self::part::{Cut, Placement};
pub use self::range::{Bytes, Comb};
pub(crate) use self::runs::{Run, Runs};
pub use self::shape::Shape;

// A list of extents or strides, without a heap allocation up to 8 axes.
// Invariant: an `Inline` list uses its first `len` places, and `len <= INLINE_NDIM`.

/// Up to so many axes, borrowed tensors and iterators need no heap.
pub(crate) const INLINE_NDIM: usize = 8;

/// A list of extents or strides.
#[derive(Clone, Debug)]
pub(crate) struct Dims(Places);

#[derive(Clone, Debug)]
enum Places {
    Inline { len: u8, values: [i64; INLINE_NDIM] },
    Heap(Box<Many>),
}

/// A longer list. Behind a pointer, so that dropping any list reads nothing but its tag: compilers read
/// the length of a boxed slice first, which valgrind reports for an inline list that ends before it.
#[derive(Clone, Debug)]
struct Many(Box<[i64]>);

impl Dims {
    /// A list of zeros.
    #[inline]
    pub(crate) fn zeros(len: usize) -> Self {
        Self(if len <= INLINE_NDIM {
            Places::Inline { len: len as u8, values: [0; INLINE_NDIM] }
        } else {
            Places::Heap(Box::new(Many(vec![0; len].into_boxed_slice())))
        })
    }
}

impl From<&[i64]> for Dims {
    #[inline]
    fn from(values: &[i64]) -> Self {
        let mut dims = Self::zeros(values.len());
        dims.copy_from_slice(values);
        dims
    }
}

impl Deref for Dims {
    type Target = [i64];

    #[inline]
    fn deref(&self) -> &[i64] {
        match &self.0 {
            Places::Inline { len, values } => &values[..usize::from(*len)],
            Places::Heap(many) => &many.0,
        }
    }
}

impl DerefMut for Dims {
    #[inline]
    fn deref_mut(&mut self) -> &mut [i64] {
        match &mut self.0 {
            Places::Inline { len, values } => &mut values[..usize::from(*len)],
            Places::Heap(many) => &mut many.0,
        }
    }
}
