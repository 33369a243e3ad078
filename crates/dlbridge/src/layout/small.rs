//! Overflow-free fast path: extents and strides bounded by their bit width.
//! Invariant: [`layout::span`](crate::layout::span) measures every small layout without an error, and its
//! elements, of up to [`ELEMENT`] bytes, lie inside the address space.
#![forbid(unsafe_code)]

/// How many bits an element count may have: with [`ELEMENT`] bytes for each, less than `isize` has.
const COUNT_BITS: u32 = isize::BITS - 8;

/// How many bits a stride may have.
const STRIDE_BITS: u32 = COUNT_BITS / 2;

/// The most bytes of an element, as whole bytes of a dtype's eight `bits` say it.
const ELEMENT: usize = 1 << 5;

/// The first address that is not small.
const ADDRESS_END: usize = 1 << (usize::BITS - 1);

/// The highest ndim that is small.
pub(crate) const NDIM: usize = 8;

/// How many bits an extent may have, for each ndim, so that the product of all extents has at most
/// [`COUNT_BITS`].
const EXTENT_BITS: [u8; NDIM + 1] = {
    let mut bits = [STRIDE_BITS as u8; NDIM + 1];
    let mut ndim = 1;
    while ndim <= NDIM {
        if ndim > 2 {
            bits[ndim] = (COUNT_BITS / ndim as u32) as u8;
        }
        // The last element lies less than `ndim` times an extent times a stride behind the first. With
        // its own bytes and any small address before it, that is within the address space.
        assert!(ndim << (bits[ndim] as u32 + STRIDE_BITS) < ADDRESS_END / ELEMENT);
        ndim += 1;
    }
    assert!(ELEMENT << COUNT_BITS < isize::MAX as usize);
    bits
};

/// The lowest address of host memory: no system maps memory below. What points there is a null
/// pointer to which an offset was added.
pub(crate) const LOWEST_ADDRESS: usize = 1 << 16;

/// Whether an address is one that host memory can have, and small.
#[inline(always)]
pub(crate) fn holds_address(address: usize) -> bool {
    // Too large addresses become negative here.
    address as isize >= LOWEST_ADDRESS as isize
}

/// Whether there are as many extents as strides, not too many, all of them small. None is negative
/// then.
#[inline(always)]
pub(crate) fn holds(shape: &[i64], strides: &[i64]) -> bool {
    // The OR of all numbers has the highest bit that any of them has.
    let together = |numbers: &[i64]| numbers.iter().fold(0, |all, number| all | number) as u64;
    match (shape, strides) {
        // For these numbers of axes, the bounds of extents and strides are the same.
        ([a], [b]) => (a | b) as u64 >> STRIDE_BITS == 0,
        ([a, b], [c, d]) => (a | b | c | d) as u64 >> STRIDE_BITS == 0,
        _ if shape.len() != strides.len() => false,
        _ => EXTENT_BITS
            .get(shape.len())
            .is_some_and(|bits| (together(shape) >> bits | together(strides) >> STRIDE_BITS) == 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{nbytes, span};
    use crate::{DType, Flags, TypeCode};

    #[test]
    fn the_largest_small_numbers_overflow_nothing() {
        let widest = DType { code: TypeCode::FLOAT, bits: 248, lanes: 1 };
        for (ndim, extent_bits) in EXTENT_BITS.into_iter().enumerate() {
            let shape = vec![(1_i64 << extent_bits) - 1; ndim];
            let strides = vec![(1_i64 << STRIDE_BITS) - 1; ndim];
            assert!(holds(&shape, &strides), "ndim {ndim}");
            let span = span(&shape, &strides).unwrap();
            nbytes(span.len, widest, Flags::NONE).unwrap();
            let bytes = nbytes(span.extent(), widest, Flags::NONE).unwrap();
            assert!((ADDRESS_END - 1).checked_add(bytes).is_some(), "ndim {ndim}");
        }
        assert!(!holds(&[1; NDIM + 1], &[1; NDIM + 1]));
        for (extents, strides) in [(0, 1), (1, 0), (1, 2), (2, 1), (3, 2), (2, 3)] {
            assert!(!holds(&vec![1; extents], &vec![1; strides]), "{extents}, {strides}");
        }
    }

    #[test]
    fn what_is_larger_or_negative_is_not_small() {
        for (ndim, extent_bits) in EXTENT_BITS.into_iter().enumerate() {
            for axis in 0..ndim {
                let ones = vec![1_i64; ndim];
                for odd in [1 << extent_bits, 1 << STRIDE_BITS, i64::MAX, -1, i64::MIN] {
                    let mut numbers = ones.clone();
                    numbers[axis] = odd;
                    assert!(!holds(&numbers, &ones), "ndim {ndim}, extent {odd}");
                    let is_stride = odd == 1 << extent_bits && ndim > 2;
                    assert_eq!(holds(&ones, &numbers), is_stride, "ndim {ndim}, {odd}");
                }
            }
        }
        let low = LOWEST_ADDRESS;
        let addresses = [0, 1, low - 1, low, ADDRESS_END - 1, ADDRESS_END, usize::MAX];
        let held = addresses.map(holds_address);
        assert_eq!(held, [false, false, false, true, true, false, false]);
    }
}
