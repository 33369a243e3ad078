//! `Layout`: the proof that a shape and strides were measured for elements of one type (R1).
//! It is made only by measuring, or by `Layout::again` for a descriptor that was made from a `Layout`.

use super::arithmetic::{self, Size, Span, Unit};
use super::{Cut, Dims, small};
use crate::{DType, DescriptorError, Error, Flags};

/// A shape and strides that were measured: no extent is negative, and the element count, the size
/// in bytes and the distance in bytes between any two elements fit `isize`.
///
/// Every tensor and every view has one. It is measured once for memory at many addresses: see
/// [`View::from_raw`](crate::View::from_raw).
///
/// ```
/// use dlbridge::{DType, Layout};
///
/// let column = Layout::new(&[3], &[2], DType::F32)?;
/// assert_eq!((column.shape(), column.strides(), column.dtype()), (&[3][..], &[2][..], DType::F32));
/// assert!(Layout::new(&[i64::MAX, 2], &[2, 1], DType::F32).is_err());
/// # Ok::<(), dlbridge::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    pub(super) shape: &'a [i64],
    pub(super) strides: &'a [i64],
    pub(super) dtype: DType,
    /// [`Flags::SUBBYTE_PADDED`], if it was measured with that.
    pub(super) padding: Flags,
}

impl<'a> Layout<'a> {
    /// Measures a shape with its strides, which count elements, outermost axis first.
    ///
    /// # Errors
    ///
    /// A negative extent, sizes that overflow, an impossible dtype, too many axes, or shape and strides of different
    /// length.
    #[inline]
    pub fn new(shape: &'a [i64], strides: &'a [i64], dtype: DType) -> Result<Self, Error> {
        Self::measure(shape, strides, dtype, Flags::NONE)
    }

    /// As [`new`](Self::new), with the flag of elements that are padded.
    ///
    /// # Errors
    ///
    /// Those of [`arithmetic::measure`].
    #[inline(always)]
    pub(crate) fn measure(
        shape: &'a [i64],
        strides: &'a [i64],
        dtype: DType,
        flags: Flags,
    ) -> Result<Self, Error> {
        match Self::small(shape, strides, dtype) {
            Some(layout) => Ok(layout),
            None => Ok(Self::sized(shape, strides, dtype, flags)?.0),
        }
    }

    /// The fast path of [`measure`](Self::measure), for numbers too small to overflow.
    #[inline(always)]
    pub(crate) fn small(shape: &'a [i64], strides: &'a [i64], dtype: DType) -> Option<Self> {
        let is_small = dtype.is_ordinary() && small::holds(shape, strides);
        is_small.then_some(Self { shape, strides, dtype, padding: Flags::NONE })
    }

    /// Measures any shape, and returns its size.
    ///
    /// # Errors
    ///
    /// Those of [`arithmetic::measure`].
    #[cold]
    pub(crate) fn sized(
        shape: &'a [i64],
        strides: &'a [i64],
        dtype: DType,
        flags: Flags,
    ) -> Result<(Self, Size), Error> {
        let size = arithmetic::measure(shape, strides, dtype, flags)?;
        Ok((Self { shape, strides, dtype, padding: padding(flags) }, size))
    }

    /// The layout of a descriptor that was made from a layout, or validated.
    ///
    /// # Safety
    ///
    /// These same numbers were measured with this type and these flags.
    #[allow(unsafe_code, reason = "the only constructor that does not measure")]
    #[inline(always)]
    pub(crate) unsafe fn again(
        shape: &'a [i64],
        strides: &'a [i64],
        dtype: DType,
        flags: Flags,
    ) -> Self {
        Self { shape, strides, dtype, padding: padding(flags) }
    }

    /// The extents, outermost axis first.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &'a [i64] {
        self.shape
    }

    /// The steps along each axis, in elements.
    #[must_use]
    #[inline]
    pub fn strides(&self) -> &'a [i64] {
        self.strides
    }

    /// The type of the elements.
    #[must_use]
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Other flags, with the padding that was measured.
    #[inline]
    pub(crate) fn pad(&self, flags: Flags) -> Flags {
        (flags - Flags::SUBBYTE_PADDED) | self.padding
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        arithmetic::count(self.shape)
    }

    /// The number of elements, and the range of their offsets from the first one.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        arithmetic::measured_span(self.shape, self.strides)
    }

    /// The size of one element.
    #[inline]
    pub(crate) fn unit(&self) -> Unit {
        Unit::new(self.dtype, self.padding)
    }

    /// The size of all elements in bytes, as if they were contiguous.
    #[inline]
    pub(crate) fn nbytes(&self) -> usize {
        self.unit().size(self.len()).expect("measured")
    }
}

#[inline(always)]
fn padding(flags: Flags) -> Flags {
    Flags(flags.0 & Flags::SUBBYTE_PADDED.0)
}

/// Space for the shape and the strides of a layout, which are written first and then measured.
pub(crate) struct Lists<'a> {
    pub(super) shape: &'a mut [i64],
    pub(super) strides: &'a mut [i64],
}

impl<'a> Lists<'a> {
    /// Two lists of the same length.
    #[inline]
    pub(crate) fn new(shape: &'a mut [i64], strides: &'a mut [i64]) -> Self {
        Self { shape, strides }
    }

    /// Writes an axis. An axis beyond the space is left out.
    ///
    /// # Errors
    ///
    /// [`DescriptorError::SizeOverflow`] if the numbers do not fit.
    #[inline(always)]
    pub(crate) fn set(
        &mut self,
        axis: usize,
        extent: usize,
        stride: impl TryInto<i64>,
    ) -> Result<(), Error> {
        if let (Some(to_extent), Some(to_stride)) =
            (self.shape.get_mut(axis), self.strides.get_mut(axis))
        {
            *to_extent = arithmetic::extent(extent)?;
            let too_large =
                |_| Error::Descriptor(DescriptorError::SizeOverflow { what: "strided span" });
            *to_stride = stride.try_into().map_err(too_large)?;
        }
        Ok(())
    }

    /// Writes the extent and the stride of each axis.
    ///
    /// # Panics
    ///
    /// If there is space for fewer axes.
    #[inline]
    pub(super) fn fill(&mut self, axes: impl Iterator<Item = (i64, i64)>) {
        for (axis, numbers) in axes.enumerate() {
            (self.shape[axis], self.strides[axis]) = numbers;
        }
    }

    /// Writes a part of a layout and measures it. Returns the offset of its first element in elements, 0 if
    /// there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Part`] for an axis, index or shape that does not fit; those of [`Layout::measure`] if the
    /// layout grows (a broadcast axis, more axes than the limit).
    ///
    /// # Panics
    ///
    /// If there is no space for as many axes as [`Cut::ndim`] says.
    pub(crate) fn part(
        mut self,
        whole: Layout<'_>,
        cut: Cut<'_>,
    ) -> Result<(Layout<'a>, isize), Error> {
        let offset = whole.write_part(cut, &mut self)?;
        let part = self.measure(whole.dtype, whole.padding)?;
        // Where there is an element, its offset was measured.
        Ok((part, if part.len() == 0 { 0 } else { offset }))
    }

    /// Writes a shape and its contiguous row-major strides, and measures them.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::measure`].
    ///
    /// # Panics
    ///
    /// If there is space for another number of axes.
    #[inline(always)]
    pub(crate) fn contiguous(
        self,
        shape: &[i64],
        dtype: DType,
        flags: Flags,
    ) -> Result<Layout<'a>, Error> {
        match (&mut *self.shape, shape) {
            // The usual numbers of axes, without a call.
            ([a], &[x]) => *a = x,
            ([a, b], &[x, y]) => (*a, *b) = (x, y),
            (to, from) => to.copy_from_slice(from),
        }
        arithmetic::contiguous_strides(shape, self.strides);
        self.measure(dtype, flags)
    }

    /// Measures the lists.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::measure`].
    #[inline(always)]
    pub(crate) fn measure(self, dtype: DType, flags: Flags) -> Result<Layout<'a>, Error> {
        Layout::measure(self.shape, self.strides, dtype, flags)
    }

    /// Copies a layout, which needs no measuring.
    ///
    /// # Panics
    ///
    /// If there is less space than the layout has axes.
    #[inline]
    pub(crate) fn copy(self, layout: Layout<'_>) -> Layout<'a> {
        match (&mut *self.shape, &mut *self.strides, layout.shape, layout.strides) {
            // The usual numbers of axes, without a call.
            ([a], [b], &[x], &[y]) => (*a, *b) = (x, y),
            ([a, b], [c, d], &[w, x], &[y, z]) => (*a, *b, *c, *d) = (w, x, y, z),
            (shape, strides, ..) => {
                shape.copy_from_slice(layout.shape);
                strides.copy_from_slice(layout.strides);
            }
        }
        Layout { shape: self.shape, strides: self.strides, ..layout }
    }
}

/// A layout that owns its lists, without a heap allocation up to 8 axes.
#[derive(Clone)]
pub(crate) struct OwnedLayout {
    shape: Dims,
    strides: Dims,
    dtype: DType,
    padding: Flags,
}

impl OwnedLayout {
    /// Measures the lists that `write` fills.
    #[inline]
    pub(crate) fn measure(
        ndim: usize,
        dtype: DType,
        flags: Flags,
        write: impl FnOnce(&mut Lists<'_>) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let (mut shape, mut strides) = (Dims::zeros(ndim), Dims::zeros(ndim));
        let mut lists = Lists::new(&mut shape, &mut strides);
        write(&mut lists)?;
        let padding = lists.measure(dtype, flags)?.padding;
        Ok(Self { shape, strides, dtype, padding })
    }

    /// A part of a layout, and the offset of its first element.
    ///
    /// # Errors
    ///
    /// As for [`Lists::part`].
    pub(crate) fn part(whole: Layout<'_>, cut: Cut<'_>) -> Result<(Self, isize), Error> {
        let ndim = cut.ndim(whole.shape.len());
        let (mut shape, mut strides) = (Dims::zeros(ndim), Dims::zeros(ndim));
        let (part, offset) = Lists::new(&mut shape, &mut strides).part(whole, cut)?;
        let Layout { dtype, padding, .. } = part;
        Ok((Self { shape, strides, dtype, padding }, offset))
    }

    #[inline]
    pub(crate) fn borrow(&self) -> Layout<'_> {
        let Self { shape, strides, dtype, padding } = self;
        Layout { shape, strides, dtype: *dtype, padding: *padding }
    }
}

impl From<Layout<'_>> for OwnedLayout {
    #[inline]
    fn from(layout: Layout<'_>) -> Self {
        let Layout { shape, strides, dtype, padding } = layout;
        Self { shape: shape.into(), strides: strides.into(), dtype, padding }
    }
}
