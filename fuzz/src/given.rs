//! Creates a producer's descriptor from a fuzzer's bytes: a legal one, some fields of which are
//! then corrupted. `facts` computes the expected result.
//! Invariant: if the ndim is allowed, a list that is not null has that length (T2).

use std::ptr;

use dlbridge::{DType, Device, Flags, MAX_NDIM};
use dlbridge_testing::Foreign;

use crate::input::Input;
use crate::model;

/// Every field of a managed tensor, in either ABI, and the memory behind it.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) flags: Flags,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    pub(crate) ndim: i32,
    pub(crate) shape: Vec<i64>,
    pub(crate) has_shape: bool,
    pub(crate) strides: Option<Vec<i64>>,
    pub(crate) data: Data,
    pub(crate) byte_offset: u64,
    pub(crate) has_deleter: bool,
    pub(crate) memory: Vec<u8>,
}

/// The target of `data`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data {
    /// This many bytes into the memory.
    Own(usize),
    At(usize),
}

/// The largest size of a producer's memory, in bytes.
const MOST: i128 = 2048;
/// The highest addresses.
const TOP: usize = usize::MAX - 300;

impl Given {
    pub(crate) fn new(input: &mut Input<'_>) -> Self {
        let mut given = Self::legal(input);
        for _ in 0..input.below(5) {
            given.spoil(input);
        }
        given
    }

    /// Memory of exactly the elements' span, so that AddressSanitizer detects any read past it.
    fn legal(input: &mut Input<'_>) -> Self {
        let dtype = if input.rarely(8) { input.dtype() } else { input.plain_dtype() };
        let shape = input.small_shape();
        let strides: Option<Vec<i64>> = match input.below(4) {
            0 => None,
            1 => model::contiguous(&shape).into_iter().collect(),
            _ => Some(shape.iter().map(|_| input.small_stride()).collect()),
        };
        let flags = Flags(input.below(8) as u64);
        let steps: Vec<_> = match &strides {
            Some(strides) => strides.clone(),
            None => model::contiguous(&shape).into_iter().flatten().collect(),
        };
        let span = model::measure(&shape, &steps).expect("small numbers");
        let places = if span.len == 0 { 0 } else { span.high - span.low + 1 };
        let (below, all) =
            (model::bytes(-span.low, dtype, flags), model::bytes(places, dtype, flags));
        let mut before = input.below(4) * input.below(4);
        let mut byte_offset = input.below(2) * input.below(32);
        byte_offset = byte_offset.min(before);
        if !(0..=MOST).contains(&all) {
            (before, byte_offset) = (0, 0);
        }
        let size = before + all.clamp(0, MOST) as usize;
        let data = Data::Own((before - byte_offset) + below.clamp(0, MOST) as usize);
        let first = input.any::<u8>();
        Self {
            major: 1,
            minor: input.below(5) as u32,
            flags,
            dtype,
            device: Device::CPU,
            ndim: shape.len() as i32,
            shape,
            has_shape: true,
            strides,
            data,
            byte_offset: byte_offset as u64,
            has_deleter: true,
            memory: (0..size).map(|i| first.wrapping_add((i * 37) as u8)).collect(),
        }
    }

    /// Corrupts one field.
    fn spoil(&mut self, input: &mut Input<'_>) {
        let axis = input.below(self.shape.len().max(1));
        match input.below(15) {
            0 => (self.major, self.minor) = (input.below(4) as u32, input.any()),
            1 => self.flags = Flags(input.any()),
            2 => self.dtype = input.dtype(),
            3 => self.device = input.device(),
            4 => {
                self.ndim = [-1, 0, 1, 63, 64, 65, i32::MIN, i32::MAX][input.below(8)];
                self.fit_lists(input);
            }
            5 => {
                self.ndim = input.below(10) as i32;
                self.fit_lists(input);
            }
            6 => self.has_shape = false,
            7 | 8 => {
                if let Some(extent) = self.shape.get_mut(axis) {
                    *extent = input.number();
                }
            }
            9 | 10 => {
                if let Some(stride) = self.strides.as_mut().and_then(|list| list.get_mut(axis)) {
                    *stride = input.number();
                }
            }
            11 => self.strides = None,
            12 => {
                self.data = match input.below(4) {
                    // Null, or an offset to it.
                    0 => Data::At(2 * usize::from(input.any::<u16>())),
                    1 => Data::Own(input.below(self.memory.len() + 1)),
                    2 => Data::At(TOP + input.below(301)),
                    _ => Data::At(input.any()),
                };
            }
            13 => {
                self.byte_offset = match input.below(3) {
                    0 => input.below(64) as u64,
                    1 => input.number() as u64,
                    _ => input.any(),
                };
            }
            _ => self.has_deleter = !input.rarely(16),
        }
    }

    /// The lists have the length of the ndim if it is allowed; for other numbers of axes they are never read.
    fn fit_lists(&mut self, input: &mut Input<'_>) {
        let Some(ndim) = usize::try_from(self.ndim).ok().filter(|&ndim| ndim <= MAX_NDIM) else {
            return;
        };
        while self.shape.len() < ndim {
            self.shape.push(if input.rarely(4) { input.number() } else { 1 });
        }
        self.shape.truncate(ndim);
        if let Some(strides) = &mut self.strides {
            while strides.len() < ndim {
                strides.push(input.number());
            }
            strides.truncate(ndim);
        }
    }

    /// The producer.
    pub(crate) fn foreign(&self) -> Foreign {
        let mut foreign = Foreign::of_bytes(self.dtype, &self.shape, &self.memory)
            .version(self.major, self.minor)
            .flags(self.flags)
            .device(self.device)
            .ndim(self.ndim)
            .byte_offset(self.byte_offset);
        foreign = match &self.strides {
            Some(strides) => foreign.strides(strides),
            None => foreign.null_strides(),
        };
        if !self.has_shape {
            foreign = foreign.null_shape();
        }
        if !self.has_deleter {
            foreign = foreign.without_deleter();
        }
        match self.data {
            Data::Own(at) => foreign.data_at(at),
            Data::At(address) => foreign.data(ptr::without_provenance_mut(address)),
        }
    }
}
