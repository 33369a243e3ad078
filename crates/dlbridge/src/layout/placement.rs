//! The location of a chosen shape within the memory of an owner: numbers only.
#![forbid(unsafe_code)]

use super::{Layout, Span};
use crate::{DType, DescriptorError, Error, Flags};

/// A chosen shape within the memory of an owner.
pub(crate) struct Placement<'a> {
    pub(crate) layout: Layout<'a>,
    pub(crate) span: Span,
    /// Of element `[0, 0, ...]`, in elements, from the start of the memory.
    pub(crate) offset: usize,
}

impl<'a> Placement<'a> {
    /// Measures the shape.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::measure`].
    #[inline]
    pub(crate) fn new(
        dtype: DType,
        shape: &'a [i64],
        strides: &'a [i64],
        offset: usize,
        flags: Flags,
    ) -> Result<Self, Error> {
        let layout = Layout::measure(shape, strides, dtype, flags)?;
        Ok(Self { layout, span: layout.span(), offset })
    }

    pub(crate) fn rank(&self) -> usize {
        self.layout.shape().len()
    }

    /// The byte offset of element `[0, 0, ...]` in memory of `size` bytes.
    pub(crate) fn offset_within(&self, size: usize) -> Result<usize, Error> {
        let (span, dtype) = (self.span, self.layout.dtype());
        let overflow = || Error::Descriptor(DescriptorError::SizeOverflow { what: "strided span" });
        let offset = isize::try_from(self.offset).map_err(|_| overflow())?;
        let (low, high) = match span.len {
            0 => (offset, offset),
            _ => (
                offset.checked_add(span.low).ok_or_else(overflow)?,
                offset
                    .checked_add(span.high)
                    .and_then(|at| at.checked_add(1))
                    .ok_or_else(overflow)?,
            ),
        };
        let bytes = |count: isize| -> Result<_, Error> {
            let size = self.bytes(count.unsigned_abs())?;
            Ok(if count < 0 { -(size as isize) } else { size as isize })
        };
        let (low, high) = (bytes(low)?, bytes(high)?);
        if low < 0 || high.unsigned_abs() > size {
            return Err(Error::OutOfBounds { low, high, size });
        }
        if self.layout.unit().is_packed() && (self.offset != 0 || span.low != 0) {
            return Err(Error::SubByte { padded: false, dtype });
        }
        Ok(bytes(offset)?.unsigned_abs())
    }

    /// The size of some elements, contiguous.
    pub(crate) fn bytes(&self, count: usize) -> Result<usize, Error> {
        let size = self.layout.unit().size(count);
        size.ok_or(Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" }))
    }
}
