//! The only constructor of a [`Layout`] that does not measure.
#![allow(unsafe_code)]

use super::Layout;
use super::measured::padding;
use crate::{DType, Flags};

impl<'a> Layout<'a> {
    /// The layout of a descriptor that was made from a layout, or validated.
    ///
    /// # Safety
    ///
    /// These same numbers were measured with this type and these flags.
    #[inline(always)]
    pub(crate) unsafe fn again(
        shape: &'a [i64],
        strides: &'a [i64],
        dtype: DType,
        flags: Flags,
    ) -> Self {
        Self { shape, strides, dtype, padding: padding(flags) }
    }
}
