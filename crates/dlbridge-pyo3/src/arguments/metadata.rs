//! `Metadata`, the description of an argument without its elements.
//! Invariant: no element can be reached from it, because the memory is not yet borrowed.

use std::fmt;

use dlbridge::{DType, Device, Flags, Tensor, layout};

/// The shape, strides, dtype, device and flags of an argument, without its elements: what a
/// [`Constraint`](crate::Constraint) sees.
///
/// A constraint is checked before the memory is borrowed, while another argument may still write it.
#[derive(Clone, Copy)]
pub struct Metadata<'a>(&'a Tensor);

impl<'a> Metadata<'a> {
    #[inline]
    pub(super) fn of(tensor: &'a Tensor) -> Self {
        Self(tensor)
    }

    /// The extents, outermost axis first.
    #[must_use]
    #[inline]
    pub fn shape(self) -> &'a [i64] {
        self.0.shape()
    }

    /// The strides in elements.
    #[must_use]
    #[inline]
    pub fn strides(self) -> &'a [i64] {
        self.0.strides()
    }

    /// The number of axes.
    #[must_use]
    #[inline]
    pub fn rank(self) -> usize {
        self.0.rank()
    }

    /// The number of elements.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The dtype of the elements.
    #[must_use]
    pub fn dtype(self) -> DType {
        self.0.dtype()
    }

    /// The device of the memory.
    #[must_use]
    pub fn device(self) -> Device {
        self.0.device()
    }

    /// The flags of DLPack.
    #[must_use]
    pub fn flags(self) -> Flags {
        self.0.flags()
    }

    /// Whether the memory must not be written.
    #[must_use]
    #[inline]
    pub fn is_read_only(self) -> bool {
        self.0.is_read_only()
    }

    /// Whether the elements are contiguous in row-major order.
    #[must_use]
    #[inline]
    pub fn is_contiguous(self) -> bool {
        self.0.is_contiguous()
    }

    /// Whether the elements are contiguous in column-major order.
    #[must_use]
    pub fn is_column_major(self) -> bool {
        layout::is_column_major(self.shape(), self.strides())
    }

    /// Whether two indices may reach the same element, as in a broadcast. A few unusual layouts without overlap are
    /// not recognised.
    #[must_use]
    #[inline]
    pub fn may_overlap(self) -> bool {
        layout::may_overlap(self.shape(), self.strides())
    }
}

impl fmt::Debug for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metadata")
            .field("dtype", &format_args!("{}", self.dtype()))
            .field("shape", &self.shape())
            .field("strides", &self.strides())
            .field("device", &format_args!("{}", self.device()))
            .field("flags", &format_args!("{}", self.flags()))
            .finish()
    }
}
