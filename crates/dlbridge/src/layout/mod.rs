//! Arithmetic on shapes and strides: counts, spans, contiguity, overlap.

mod arithmetic;
mod blocks;
mod dims;
mod measured;
mod part;
mod placement;
mod range;
mod reshape;
mod runs;
pub(crate) mod small;

pub(crate) use arithmetic::count;
#[cfg(any(feature = "arrow-58", feature = "arrow-59", feature = "arrow-60"))]
pub(crate) use arithmetic::extent;
#[cfg(any(feature = "burn-0_22", feature = "burn-flex-0_22", feature = "candle-core-0_11"))]
pub(crate) use arithmetic::extents;
pub use arithmetic::{
    Span, contiguous_nbytes, contiguous_strides, first_gap, is_column_major, is_contiguous,
    may_overlap, nbytes, span,
};
pub(crate) use blocks::{Axis, Blocks, by_stride};
pub use dims::Dims;
pub(crate) use measured::{Layout, Lists, OwnedLayout};
pub(crate) use part::Cut;
pub(crate) use placement::Placement;
pub use range::{Bytes, Comb};
pub(crate) use runs::{Run, Runs};
