//! What layouts, types and devices mean, in exact numbers and with no regard to speed.
//! Nothing of the library's own arithmetic is used here: the model computes for itself.
//! Invariant: sums and products are of 128 bits, and saturate far above all that is allowed.

use dlbridge::{DType, Error, Flags};

/// The largest size or distance.
const MOST: i128 = isize::MAX as i128;

/// How many elements there are, and between which offsets they lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) len: i128,
    pub(crate) low: i128,
    pub(crate) high: i128,
}

/// Measures a layout, or tells everything that is wrong with it.
pub(crate) fn measure(shape: &[i64], strides: &[i64]) -> Result<Span, Vec<Error>> {
    if shape.len() != strides.len() {
        return Err(vec![Error::RankMismatch { wanted: shape.len(), found: strides.len() }]);
    }
    let negative = |(axis, &extent): (usize, &i64)| {
        (extent < 0).then_some(Error::NegativeExtent { axis, extent })
    };
    let faults: Vec<_> = shape.iter().enumerate().filter_map(negative).collect();
    if !faults.is_empty() {
        return Err(faults);
    }
    let wide = shape.iter().filter(|&&extent| extent != 0);
    let len = wide.fold(1_i128, |len, &extent| len.saturating_mul(i128::from(extent)));
    if len > MOST {
        return Err(vec![Error::SizeOverflow { what: "element count" }]);
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
        return Err(vec![Error::SizeOverflow { what: "strided span" }]);
    }
    Ok(Span { len, low, high })
}

/// The strides of a compact tensor, as far as they fit; an empty axis counts as one.
pub(crate) fn compact(shape: &[i64]) -> Vec<Option<i64>> {
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

/// Whether the elements lie side by side in row-major order, by the definition: the offset of the
/// i-th is i.
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

/// Why no tensor can have a type.
pub(crate) fn is_impossible(dtype: DType) -> bool {
    let fixed = match dtype.code.0 {
        7..=14 => Some(8),
        15 | 16 => Some(6),
        17 => Some(4),
        _ => None,
    };
    dtype.bits == 0 || dtype.lanes == 0 || fixed.is_some_and(|bits| bits != dtype.bits)
}

/// Whether elements begin inside of bytes.
pub(crate) fn is_packed(dtype: DType, flags: Flags) -> bool {
    let padded = flags.contains(Flags::SUBBYTE_PADDED);
    dtype.bits < 8 && !padded && u32::from(dtype.bits) * u32::from(dtype.lanes) % 8 != 0
}

/// The bytes of `count` elements side by side, however many those are.
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

/// The same, where it is allowed. Packed elements are counted in bits, which must fit a word.
pub(crate) fn size(count: i128, dtype: DType, flags: Flags) -> Option<i128> {
    let bits = i128::from(dtype.bits) * i128::from(dtype.lanes);
    let countable = count.saturating_mul(bits) <= u64::MAX.into();
    let size = bytes(count, dtype, flags);
    (size <= MOST && (countable || !is_packed(dtype, flags))).then_some(size)
}

/// Whether the host can read memory of a kind of device.
pub(crate) fn is_host(kind: i32) -> bool {
    matches!(kind, 1 | 3 | 11 | 13 | 20)
}

/// Whether pointers of a kind of device are addresses.
pub(crate) fn has_addresses(kind: i32) -> bool {
    is_host(kind) || matches!(kind, 2 | 10 | 14 | 21)
}
