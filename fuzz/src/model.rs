//! The model of layouts, dtypes and devices: exact and slow, without any of the library's
//! arithmetic.
//! Invariant: sums and products have 128 bits, and saturate far above every limit.

use dlbridge::{DType, DescriptorError, Error, Flags, ShapeField};

/// The largest size or distance.
const MOST: i128 = isize::MAX as i128;

/// The number of elements, and the range of their offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) len: i128,
    pub(crate) low: i128,
    pub(crate) high: i128,
}

/// Measures a layout, or lists all its faults.
pub(crate) fn measure(shape: &[i64], strides: &[i64]) -> Result<Span, Vec<Error>> {
    if shape.len() != strides.len() {
        return Err(vec![Error::ShapeMismatch {
            field: ShapeField::Ndim,
            expected: shape.len(),
            found: strides.len(),
        }]);
    }
    let negative = |(axis, &extent): (usize, &i64)| {
        (extent < 0).then_some(Error::Descriptor(DescriptorError::NegativeExtent { axis, extent }))
    };
    let faults: Vec<_> = shape.iter().enumerate().filter_map(negative).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let wide = shape.iter().filter(|&&extent| extent != 0);
    let len = wide.fold(1_i128, |len, &extent| len.saturating_mul(i128::from(extent)));
    if len > MOST {
        return Err(vec![DescriptorError::SizeOverflow { what: "element count" }.into()]);
    }
    if shape.contains(&0) {
        return Ok(Span { len: 0, low: 0, high: 0 });
    }
    let (mut low, mut high) = (0_i128, 0_i128);
    for (&extent, &stride) in shape.iter().zip(strides) {
        let reach = i128::from(extent - 1) * i128::from(stride);
        low = low.saturating_add(reach.min(0));
        high = high.saturating_add(reach.max(0));
    }
    if low < -MOST - 1 || high > MOST || high - low > MOST {
        return Err(vec![DescriptorError::SizeOverflow { what: "strided span" }.into()]);
    }
    Ok(Span { len, low, high })
}

/// The strides of a contiguous tensor, as far as they fit; an empty axis counts as one.
pub(crate) fn contiguous(shape: &[i64]) -> Vec<Option<i64>> {
    let mut step = Some(1_i64);
    let mut strides: Vec<_> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let stride = step;
            step = step.and_then(|step| step.checked_mul(extent.max(1)));
            stride
        })
        .collect();
    strides.reverse();
    strides
}

/// Whether the elements are contiguous in row-major order: the i-th element has offset i.
pub(crate) fn is_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut step = 1_i128;
    let fits = shape.iter().zip(strides).rev().all(|(&extent, &stride)| {
        let wanted = step;
        step = step.saturating_mul(i128::from(extent));
        extent == 1 || i128::from(stride) == wanted
    });
    fits || shape.contains(&0)
}

/// The index of the i-th element in row-major order.
pub(crate) fn index_of(mut i: usize, shape: &[i64]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (place, &extent) in index.iter_mut().zip(shape).rev() {
        *place = i % extent as usize;
        i /= extent as usize;
    }
    index
}

/// The offset of an index, in elements.
pub(crate) fn offset_of(index: &[usize], strides: &[i64]) -> i128 {
    index.iter().zip(strides).map(|(&i, &stride)| i as i128 * i128::from(stride)).sum()
}

/// The offset of the i-th element in row-major order.
pub(crate) fn offset_of_nth(i: usize, shape: &[i64], strides: &[i64]) -> i128 {
    offset_of(&index_of(i, shape), strides)
}

/// Whether no tensor can have a dtype.
pub(crate) fn is_impossible(dtype: DType) -> bool {
    let fixed = match dtype.code.0 {
        7..=14 => Some(8),
        15 | 16 => Some(6),
        17 => Some(4),
        _ => None,
    };
    dtype.bits == 0 || dtype.lanes == 0 || fixed.is_some_and(|bits| bits != dtype.bits)
}

/// Whether elements can begin inside a byte.
pub(crate) fn is_packed(dtype: DType, flags: Flags) -> bool {
    let padded = flags.contains(Flags::SUBBYTE_PADDED);
    dtype.bits < 8 && !padded && u32::from(dtype.bits) * u32::from(dtype.lanes) % 8 != 0
}

/// The size of `count` contiguous elements in bytes, without a limit.
pub(crate) fn bytes(count: i128, dtype: DType, flags: Flags) -> i128 {
    let (bits, lanes) = (i128::from(dtype.bits), i128::from(dtype.lanes));
    if dtype.bits >= 8 {
        return count.saturating_mul((bits * lanes + 7) / 8);
    }
    if flags.contains(Flags::SUBBYTE_PADDED) {
        return count.saturating_mul(lanes);
    }
    count.saturating_mul(bits * lanes).saturating_add(7) / 8
}

/// The same, if it is allowed. Packed elements are counted in bits, which must fit a word.
pub(crate) fn size(count: i128, dtype: DType, flags: Flags) -> Option<i128> {
    let bits = i128::from(dtype.bits) * i128::from(dtype.lanes);
    let countable = count.saturating_mul(bits) <= u64::MAX.into();
    let size = bytes(count, dtype, flags);
    (size <= MOST && (countable || !is_packed(dtype, flags))).then_some(size)
}

/// Whether the host can read the memory of a device type.
pub(crate) fn is_host(kind: i32) -> bool {
    matches!(kind, 1 | 3 | 11 | 13 | 20)
}

/// The lowest address that memory of a device type can have.
pub(crate) fn lowest_address(kind: i32) -> i128 {
    if is_host(kind) { 0x1_0000 } else { 1 }
}

/// Whether pointers of a device type are addresses.
pub(crate) fn has_addresses(kind: i32) -> bool {
    is_host(kind) || matches!(kind, 2 | 10 | 14 | 21)
}
