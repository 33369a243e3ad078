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
    #[inline]
    pub(crate) fn offset_within(&self, size: usize) -> Result<usize, Error> {
        match self.ordinary_offset_within(size) {
            Some(offset) => Ok(offset),
            None => self.any_offset_within(size),
        }
    }

    /// The same, for elements of whole bytes of which none lies in front of the first one; `None`
    /// also for elements that do not fit.
    #[inline(always)]
    fn ordinary_offset_within(&self, size: usize) -> Option<usize> {
        let Span { len, low, high } = self.span;
        let unit = self.layout.unit();
        if low != 0 || unit.is_packed() {
            return None;
        }
        // Not negative, as the upper bound of a span.
        let places = if len == 0 { 0 } else { high as usize + 1 };
        let end = unit.size(self.offset.checked_add(places)?)?;
        if end > size { None } else { unit.size(self.offset) }
    }

    /// The same, for any elements, with an error for what does not fit.
    #[cold]
    fn any_offset_within(&self, size: usize) -> Result<usize, Error> {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::TypeCode;
    use crate::layout::span;

    proptest! {
        /// What is not measured again is the same, and the short way to an offset finds the one that
        /// the whole way finds.
        #[test]
        fn short_ways_agree_with_whole_ones(
            (shape, strides) in (0..4_usize).prop_flat_map(|rank| {
                let stride = prop_oneof![9 => -2..5_i64, 1 => prop::sample::select(vec![i64::MIN, i64::MAX])];
                (prop::collection::vec(0..4_i64, rank), prop::collection::vec(stride, rank))
            }),
            bits in prop::sample::select(vec![4, 8, 32]),
            (offset, size) in (prop_oneof![9 => 0..8_usize, 1 => Just(usize::MAX)], 0..80_usize),
        ) {
            let dtype = DType { code: TypeCode::UINT, bits, lanes: 1 };
            let placement = Placement::new(dtype, &shape, &strides, offset, Flags::NONE);
            if let Ok(placement) = placement {
                prop_assert_eq!(placement.span, span(&shape, &strides)?);
                let whole = placement.any_offset_within(size).ok();
                match placement.ordinary_offset_within(size) {
                    Some(offset) => prop_assert_eq!(whole, Some(offset)),
                    None => prop_assert!(whole.is_none() || bits < 8 || placement.span.low < 0),
                }
            }
        }
    }
}
