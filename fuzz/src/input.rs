//! Decodes numbers, dtypes and lists from a fuzzer's bytes.
//! Invariant: any bytes are an input; after their end, every value is 0.

use arbitrary::{Arbitrary, Unstructured};
use dlbridge::{DType, Device, DeviceKind, TypeCode};

/// Edge values, at which arithmetic on extents and strides could overflow.
const EDGES: [i64; 20] = [
    i64::MIN,
    i64::MIN + 1,
    i64::MIN / 2,
    -(1 << 32),
    -(1 << 31),
    -17,
    -8,
    8,
    16,
    255,
    1 << 16,
    1 << 31,
    1 << 32,
    3_037_000_500, // its square is the first not to fit 63 bits
    1 << 58,
    1 << 60,
    1 << 61,
    1 << 62,
    i64::MAX - 1,
    i64::MAX,
];

/// Dtypes that have a Rust type, of every size; most tensors get one of them.
const PLAIN: [DType; 8] = [
    DType::U8,
    DType::I16,
    DType::U32,
    DType::F32,
    DType::I64,
    DType::F64,
    DType::U128,
    DType::BOOL,
];

/// The remaining bytes.
#[derive(Debug)]
pub(crate) struct Input<'a>(Unstructured<'a>);

impl<'a> Input<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Any value of a type.
    pub(crate) fn any<T: Arbitrary<'a> + Default>(&mut self) -> T {
        self.0.arbitrary().unwrap_or_default()
    }

    /// A number below `end`, which is at least 1.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0.int_in_range(0..=end - 1).unwrap_or_default()
    }

    /// True once in `times`.
    pub(crate) fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// An item of a list.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A stride or an extent: mostly small, sometimes at or next to an edge value, or any number.
    pub(crate) fn number(&mut self) -> i64 {
        match self.any::<u8>() {
            tag @ 0..192 => i64::from(tag % 12) - 4,
            tag @ 192..240 => self.one_of(&EDGES).wrapping_add(i64::from(tag % 3) - 1),
            _ => self.any(),
        }
    }

    /// A stride within a short vector.
    pub(crate) fn small_stride(&mut self) -> i64 {
        self.below(15) as i64 - 7
    }

    /// `len` numbers.
    pub(crate) fn numbers(&mut self, len: usize) -> Vec<i64> {
        (0..len).map(|_| self.number()).collect()
    }

    /// A few extents of at most 5, and so few elements that all are compared often.
    pub(crate) fn small_shape(&mut self) -> Vec<i64> {
        let ndim = if self.rarely(32) { self.below(12) } else { self.below(5) };
        let mut most = 120;
        let mut extent = || {
            let extent = self.below(6).min(most);
            most /= extent.max(1);
            extent as i64
        };
        (0..ndim).map(|_| extent()).collect()
    }

    pub(crate) fn plain_dtype(&mut self) -> DType {
        self.one_of(&PLAIN)
    }

    /// A dtype with a name, with lanes, or with arbitrary numbers.
    pub(crate) fn dtype(&mut self) -> DType {
        match self.below(4) {
            0 => self.plain_dtype(),
            1 => self.one_of(DType::NAMED),
            2 => self.one_of(DType::NAMED).with_lanes(self.below(10) as u16),
            _ => DType { code: TypeCode(self.any()), bits: self.any(), lanes: self.any() },
        }
    }

    pub(crate) fn device(&mut self) -> Device {
        match self.below(3) {
            0 => Device::new(self.one_of(DeviceKind::ALL), self.below(3) as i32),
            1 => Device::new(DeviceKind(self.below(24) as i32), self.any()),
            _ => Device::new(DeviceKind(self.any()), self.any()),
        }
    }
}
