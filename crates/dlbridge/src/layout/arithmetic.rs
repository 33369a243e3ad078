//! Checked arithmetic on shapes and strides: counts, spans, contiguity, overlap.
//! Invariant: shapes and strides count elements, never bytes, outermost axis first.
#![forbid(unsafe_code)]

use crate::{DType, DescriptorError, Error, Flags, MAX_NDIM};

/// The number of elements, and the range of their offsets from the first one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Number of elements, the product of all extents.
    pub len: usize,
    /// Offset of the lowest element from element `[0, 0, ...]`; never positive.
    pub low: isize,
    /// Offset of the highest element from element `[0, 0, ...]`; never negative.
    pub high: isize,
}

impl Span {
    /// Number of element places from the lowest to the highest, gaps included; 0 if empty.
    #[must_use]
    pub const fn extent(self) -> usize {
        if self.len == 0 { 0 } else { self.high.abs_diff(self.low) + 1 }
    }
}

/// The number of elements of a shape that was measured: of all extents but zeros, the product fits.
#[inline]
pub(crate) fn count(shape: &[i64]) -> usize {
    shape.iter().fold(1, |count, &extent| count * extent as usize)
}

/// Whether an axis has no elements. Out of line, because the compiler makes a long loop of it, and few layouts ask.
#[cold]
#[inline(never)]
#[must_use]
pub fn is_empty(shape: &[i64]) -> bool {
    shape.contains(&0)
}

/// The span of a shape and strides that were measured: nothing in it overflows.
#[inline]
pub(crate) fn measured_span(shape: &[i64], strides: &[i64]) -> Span {
    let (mut len, mut low, mut high) = (1_usize, 0_isize, 0_isize);
    for (&extent, &stride) in shape.iter().zip(strides) {
        len = len.wrapping_mul(extent as usize);
        // Wraps only in a shape without elements, whose strides may be anything.
        let reach = (stride as isize).wrapping_mul((extent as isize).wrapping_sub(1));
        if reach < 0 {
            low = low.wrapping_add(reach);
        } else {
            high = high.wrapping_add(reach);
        }
    }
    if len == 0 { Span { len: 0, low: 0, high: 0 } } else { Span { len, low, high } }
}

/// An extent of another crate's array, which counts in `usize`.
#[inline(always)]
pub(crate) fn extent(extent: usize) -> Result<i64, Error> {
    i64::try_from(extent)
        .map_err(|_| Error::Descriptor(DescriptorError::SizeOverflow { what: "element count" }))
}

/// The extents, or strides that are not negative, of another crate's array.
#[cfg(any(feature = "burn-0_22", feature = "burn-flex-0_22", feature = "candle-core-0_11"))]
pub(crate) fn extents(extents: &[usize]) -> Result<Vec<i64>, Error> {
    extents.iter().map(|&number| extent(number)).collect()
}

/// The result of measuring a shape with strides for an element type.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) span: Span,
    /// The bytes from the lowest element to the start of the first one.
    pub(crate) below: usize,
    /// The bytes from the start of the first element to the end of the highest one; 0 if there are none.
    pub(crate) above: usize,
}

/// Measures any shape with its strides for elements of a type.
///
/// # Errors
///
/// [`DescriptorError::NdimOutOfRange`], [`DescriptorError::ImpossibleDType`], those of [`span`], and
/// [`DescriptorError::SizeOverflow`] if the bytes of all elements, contiguous or with their gaps, do
/// not fit `isize`.
pub(crate) fn measure(
    shape: &[i64],
    strides: &[i64],
    dtype: DType,
    flags: Flags,
) -> Result<Size, Error> {
    if let Some(reason) = dtype.impossible() {
        return Err(DescriptorError::ImpossibleDType { dtype, reason }.into());
    }
    if shape.len() > MAX_NDIM {
        return Err(DescriptorError::NdimOutOfRange {
            ndim: shape.len().try_into().unwrap_or(i32::MAX),
        }
        .into());
    }
    let span = span(shape, strides)?;
    if span.len == 0 {
        return Ok(Size { span, below: 0, above: 0 });
    }
    let unit = Unit::new(dtype, flags);
    match unit.reach(span) {
        Some((below, above)) => Ok(Size { span, below, above }),
        None => {
            let fits = unit.size(span.len).is_some();
            let what = if fits { "strided span" } else { "byte size" };
            Err(DescriptorError::SizeOverflow { what }.into())
        }
    }
}

/// Measures a shape with its strides.
///
/// The conditions, each checked:
/// 1. no extent is negative;
/// 2. the product of the extents other than zero fits `isize` (so that dropping or keeping an
///    empty axis never overflows);
/// 3. if there is an element at all, the offsets of all elements fit `isize`, and so does the
///    distance between the lowest and the highest.
///
/// ```
/// use dlbridge::layout::{Span, span};
///
/// // a 2 x 3 array whose rows run backwards
/// assert_eq!(span(&[2, 3], &[3, -1])?, Span { len: 6, low: -2, high: 3 });
/// # Ok::<(), dlbridge::Error>(())
/// ```
///
/// # Errors
///
/// [`DescriptorError::NegativeExtent`], [`DescriptorError::SizeOverflow`], or
/// [`Error::ShapeMismatch`] if the two lists differ in length.
pub fn span(shape: &[i64], strides: &[i64]) -> Result<Span, Error> {
    if shape.len() != strides.len() {
        return Err(Error::ndim(shape.len(), strides.len()));
    }
    if let Some((axis, &extent)) = shape.iter().enumerate().find(|&(_, &extent)| extent < 0) {
        return Err(DescriptorError::NegativeExtent { axis, extent }.into());
    }
    let too_large = |what| Error::Descriptor(DescriptorError::SizeOverflow { what });
    let multiply = |len: isize, &extent: &i64| len.checked_mul(extent.try_into().ok()?);
    let count = shape.iter().filter(|&&extent| extent != 0).try_fold(1, multiply);
    let len = count.ok_or_else(|| too_large("element count"))? as usize;
    if is_empty(shape) {
        return Ok(Span { len: 0, low: 0, high: 0 });
    }
    let reached = || {
        let (mut low, mut high) = (0_i64, 0_i64);
        for (&extent, &stride) in shape.iter().zip(strides) {
            let reach = stride.checked_mul(extent - 1)?;
            let end = if reach < 0 { &mut low } else { &mut high };
            *end = end.checked_add(reach)?;
        }
        let (low, high) = (isize::try_from(low).ok()?, isize::try_from(high).ok()?);
        high.checked_sub(low)?;
        Some(Span { len, low, high })
    };
    reached().ok_or_else(|| too_large("strided span"))
}

/// Size in bytes of `count` contiguous elements. Elements narrower than a byte are packed,
/// unless `flags` has [`Flags::SUBBYTE_PADDED`].
///
/// # Errors
///
/// [`DescriptorError::SizeOverflow`] if the size does not fit `isize`.
#[inline]
pub fn nbytes(count: usize, dtype: DType, flags: Flags) -> Result<usize, Error> {
    Unit::new(dtype, flags)
        .size(count)
        .ok_or(Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" }))
}

impl DType {
    /// Bytes of a contiguous tensor of this dtype, checked as those of a tensor that is allocated.
    ///
    /// ```
    /// use dlbridge::DType;
    ///
    /// assert_eq!(DType::F32.contiguous_nbytes(&[2, 3])?, 24);
    /// assert!(DType::F32.contiguous_nbytes(&[-1]).is_err());
    /// # Ok::<(), dlbridge::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DescriptorError::NdimOutOfRange`], [`DescriptorError::ImpossibleDType`],
    /// [`DescriptorError::NegativeExtent`] or [`DescriptorError::SizeOverflow`].
    pub fn contiguous_nbytes(self, shape: &[i64]) -> Result<usize, Error> {
        let mut strides = vec![0; shape.len()];
        contiguous_strides(shape, &mut strides);
        let size = measure(shape, &strides, self, Flags::NONE)?;
        nbytes(size.span.len, self, Flags::NONE)
    }
}

/// The size of one element: in bytes, or in bits where elements are packed below the byte.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    amount: usize,
    /// Whether `amount` counts bits.
    packed: bool,
}

impl Unit {
    #[inline]
    pub(crate) fn new(dtype: DType, flags: Flags) -> Self {
        if dtype.is_ordinary() {
            return Self { amount: usize::from(dtype.bits / 8), packed: false };
        }
        Self::odd(dtype, flags)
    }

    #[cold]
    fn odd(dtype: DType, flags: Flags) -> Self {
        match dtype.itemsize() {
            Some(_) | None if dtype.bits < 8 && flags.contains(Flags::SUBBYTE_PADDED) => {
                Self { amount: usize::from(dtype.lanes), packed: false }
            }
            Some(itemsize) => Self { amount: itemsize, packed: false },
            None => Self { amount: dtype.element_bits() as usize, packed: true },
        }
    }

    /// The bytes of an element that has them to itself, at most.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        if self.packed { self.amount.div_ceil(8) } else { self.amount }
    }

    /// Whether elements begin inside of bytes.
    #[inline]
    pub(crate) fn is_packed(self) -> bool {
        self.packed
    }

    /// A distance in elements of a measured layout as bytes; `None` unless it is a whole number of bytes.
    #[inline]
    pub(crate) fn offset(self, elements: isize) -> Option<isize> {
        if !self.packed {
            return Some(elements.wrapping_mul(self.amount as isize));
        }
        let bits = elements as i128 * self.amount as i128;
        (bits % 8 == 0).then_some((bits / 8) as isize)
    }

    /// The size of `count` contiguous elements in bytes, if it fits `isize`.
    #[inline]
    pub(crate) fn size(self, count: usize) -> Option<usize> {
        let amount = count.checked_mul(self.amount)?;
        let size = if self.packed { amount.div_ceil(8) } else { amount };
        (size <= isize::MAX.unsigned_abs()).then_some(size)
    }

    /// How many bytes the elements of a span, which is not empty, reach below and above the start
    /// of the first one; `None` if their size, contiguous or with gaps, does not fit `isize`.
    #[inline]
    pub(crate) fn reach(self, span: Span) -> Option<(usize, usize)> {
        // Broadcast axes make more elements than there are places, gaps more places than elements.
        let Span { len, low, high } = span;
        // Bounds of a span are never negative.
        let (below, above) = (low.wrapping_neg() as usize, high as usize + 1);
        let places = below + above;
        if self.packed {
            self.size(len.max(places))?;
            return Some((self.size(below)?, self.size(above)?));
        }
        let size = len.max(places).checked_mul(self.amount)?;
        // Parts of what fits.
        let parts = (below.wrapping_mul(self.amount), above.wrapping_mul(self.amount));
        isize::try_from(size).is_ok().then_some(parts)
    }
}

/// Writes the strides of a contiguous row-major array of `shape` into `strides`, which must be as
/// long. An empty axis counts as one, so that strides of empty arrays look like any other's.
/// Strides too large for `i64` wrap; [`span`] refuses such shapes.
pub fn contiguous_strides(shape: &[i64], strides: &mut [i64]) {
    let mut next = 1_i64;
    for (stride, &extent) in strides.iter_mut().zip(shape).rev() {
        *stride = next;
        next = next.wrapping_mul(extent.max(1));
    }
}

/// Whether the elements are contiguous in row-major order. Axes of extent 1 may have any stride, as
/// may all axes of an empty array.
#[must_use]
#[inline]
pub fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    has_no_gaps(shape.iter().zip(strides).rev(), shape)
}

/// Whether the elements are contiguous in column-major order, that of Fortran and Julia.
#[must_use]
pub fn is_column_major(shape: &[i64], strides: &[i64]) -> bool {
    has_no_gaps(shape.iter().zip(strides), shape)
}

#[inline]
fn has_no_gaps<'a>(axes: impl Iterator<Item = (&'a i64, &'a i64)>, shape: &[i64]) -> bool {
    let mut next = 1_i64;
    for (&extent, &stride) in axes {
        if extent != 1 && stride != next {
            return is_empty(shape);
        }
        next = next.wrapping_mul(extent);
    }
    true
}

/// The outermost axis whose stride is not that of a contiguous row-major layout, with the stride that
/// such a layout has; `None` for a contiguous layout.
///
/// # Panics
///
/// If there are fewer strides than extents.
#[must_use]
pub fn first_gap(shape: &[i64], strides: &[i64]) -> Option<(usize, i64)> {
    if is_contiguous(shape, strides) {
        return None;
    }
    let mut next = 1_i64;
    let mut gap = None;
    for axis in (0..shape.len()).rev() {
        if shape[axis] != 1 && strides[axis] != next {
            gap = Some((axis, next));
        }
        next = next.wrapping_mul(shape[axis]);
    }
    gap
}

/// Whether two different indices may reach the same element. `false` is a proof that none do;
/// `true` can be wrong: some unusual layouts without overlap are not recognised.
///
/// The proof: taken by growing stride, each axis steps over everything that the axes before it
/// can reach.
///
/// # Panics
///
/// If there are fewer strides than extents.
#[must_use]
#[inline]
pub fn may_overlap(shape: &[i64], strides: &[i64]) -> bool {
    // Most arrays, in a few instructions.
    match (shape, strides) {
        (&[extent], &[stride]) => stride == 0 && extent > 1,
        _ => {
            !is_contiguous(shape, &strides[..shape.len()]) && may_overlap_with_gaps(shape, strides)
        }
    }
}

fn may_overlap_with_gaps(shape: &[i64], strides: &[i64]) -> bool {
    if is_empty(shape) {
        return false;
    }
    let wide = |&axis: &usize| shape[axis] > 1;
    (0..shape.len()).filter(wide).any(|axis| {
        let step = strides[axis].unsigned_abs();
        let inner = (0..shape.len())
            .filter(wide)
            .filter(|&other| (strides[other].unsigned_abs(), other) < (step, axis))
            .map(|other| strides[other].unsigned_abs().saturating_mul(shape[other] as u64 - 1))
            .fold(0_u64, u64::saturating_add);
        step <= inner
    })
}
