//! Target `builder`: any sequence of builder calls over owners that count their drops. Target
//! `view` reads tensors thoroughly; this one reads each element once.
//! Invariant: an owner is dropped once, whether or not the builder succeeds.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dlbridge::{
    Access, Builder, DType, DescriptorError, Device, Error, Flags, MAX_NDIM, Plain, ShapeField,
    Tensor,
};
use dlbridge_testing::{CountingOwner, PanicOnBorrow, PanicOnDrop, Releases};

use crate::elements;
use crate::facts::{Facts, WALKED, assert_named, assert_says};
use crate::input::Input;
use crate::model;
use crate::release::{delete, delete_legacy};
use crate::value::{ForType, Value, for_type};

/// Builds one tensor, or has it rejected.
///
/// # Panics
///
/// If it is built or rejected contrary to the model, if its metadata or elements differ from the
/// model, or if the owner is not dropped exactly once.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.rarely(8) {
        return from_bytes(&mut input);
    }
    let dtype = input.plain_dtype();
    for_type(dtype, Run(input));
}

struct Run<'a>(Input<'a>);

impl ForType for Run<'_> {
    type Output = ();

    fn plain<T: Value + Plain + Default>(mut self) {
        build::<T>(&mut self.0);
    }

    fn bool(mut self) {
        // Booleans have no mutable slice.
        build::<u8>(&mut self.0);
    }

    fn none(self) {
        unreachable!("it has a Rust type");
    }
}

/// The last value of each setting.
#[derive(Default, Debug)]
struct Chosen {
    dtype: Option<DType>,
    shape: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    offset: usize,
}

impl Chosen {
    /// One call of the builder.
    fn call<O: Send + 'static>(
        &mut self,
        builder: Builder<O>,
        input: &mut Input<'_>,
    ) -> Builder<O> {
        match input.below(8) {
            0 | 1 => {
                let shape = match input.below(8) {
                    0 => {
                        let ndim = input.below(6);
                        input.numbers(ndim)
                    }
                    1 => vec![1; input.below(MAX_NDIM + 4)],
                    _ => input.small_shape(),
                };
                let builder = builder.shape(&shape);
                self.shape = Some(shape);
                builder
            }
            2 | 3 => {
                let ndim = self.shape.as_ref().map_or(1, Vec::len);
                let ndim = if input.rarely(16) { input.below(5) } else { ndim };
                let strides: Vec<i64> = if input.rarely(4) {
                    input.numbers(ndim)
                } else {
                    (0..ndim).map(|_| input.small_stride()).collect()
                };
                let builder = builder.strides(&strides);
                self.strides = Some(strides);
                builder
            }
            4 | 5 => {
                let offset = match input.below(8) {
                    0 => input.any(),
                    1 => input.number() as usize,
                    _ => input.below(40),
                };
                self.offset = offset;
                builder.offset(offset)
            }
            6 => {
                let dtype = input.dtype();
                self.dtype = Some(dtype);
                builder.dtype(dtype)
            }
            _ => builder,
        }
    }

    /// The expected result of the calls, for an owner of `size` bytes at `start`.
    fn judge<T: Value>(
        &self,
        memory: &[u8],
        start: usize,
        flags: Flags,
    ) -> Result<Facts, Vec<Error>> {
        let dtype = self.dtype.unwrap_or(T::DTYPE);
        let size = memory.len() as i128;
        let packed = model::is_packed(dtype, Flags::NONE);
        let mut faults = Vec::new();
        if model::is_impossible(dtype) {
            faults.push(DescriptorError::ImpossibleDType { dtype, reason: "" }.into());
        }
        let shape = match &self.shape {
            Some(shape) => shape.clone(),
            None if packed => {
                faults.push(Error::SubByte { padded: false, dtype });
                return Err(faults);
            }
            None => {
                let fit = size / model::bytes(1, dtype, Flags::NONE).max(1);
                vec![(fit - self.offset as i128).max(0) as i64]
            }
        };
        let strides = match &self.strides {
            Some(strides) => strides.clone(),
            None => model::contiguous(&shape).into_iter().map(Option::unwrap_or_default).collect(),
        };
        if shape.len() > MAX_NDIM {
            faults.push(DescriptorError::NdimOutOfRange { ndim: shape.len() as i32 }.into());
        }
        let span = match model::measure(&shape, &strides) {
            Ok(span) => span,
            Err(more) => {
                faults.extend(more);
                return Err(faults);
            }
        };
        if model::size(span.len, dtype, Flags::NONE).is_none() {
            faults.push(DescriptorError::SizeOverflow { what: "byte size" }.into());
        }
        let offset = self.offset as i128;
        let (low, high) = match span.len {
            0 => (offset, offset),
            _ => (offset + span.low, offset + span.high + 1),
        };
        let bytes = |count: i128| {
            model::bytes(count.abs(), dtype, Flags::NONE) * if count < 0 { -1 } else { 1 }
        };
        let (low, high) = (bytes(low), bytes(high));
        if low < 0 || high > size {
            faults.push(match (isize::try_from(low), isize::try_from(high)) {
                (Ok(low), Ok(high)) => Error::OutOfBounds { low, high, size: memory.len() },
                _ => Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" }),
            });
            // Numbers that are out of bounds may also overflow.
            faults.push(DescriptorError::SizeOverflow { what: "strided span" }.into());
            faults.push(DescriptorError::SizeOverflow { what: "byte size" }.into());
        }
        if packed && (offset != 0 || span.low != 0) {
            faults.push(Error::SubByte { padded: false, dtype });
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let len = span.len as usize;
        let first = bytes(offset);
        let itemsize = model::bytes(1, dtype, Flags::NONE);
        let element = |i| {
            let at = first + model::offset_of_nth(i, &shape, &strides) * itemsize;
            memory[at as usize..(at + itemsize) as usize].to_vec()
        };
        let walked = !packed && len <= WALKED;
        let elements = walked.then(|| (0..len).map(element).collect());
        let read_only = flags.contains(Flags::READ_ONLY);
        Ok(Facts {
            elements,
            dtype,
            device: Device::CPU,
            flags,
            access: if read_only { Access::Frozen } else { Access::Exclusive },
            len,
            data: start + first as usize,
            byte_offset: 0,
            shape,
            strides,
        })
    }
}

/// An owner of bytes, the calls, and one of the methods that finish the builder.
fn build<T: Value + Plain + Default>(input: &mut Input<'_>) {
    let count = input.below(48);
    let first = input.any::<u8>();
    let raw: Vec<u8> =
        (0..count * size_of::<T>()).map(|i| first.wrapping_add((i * 29) as u8)).collect();
    let values: Vec<T> = raw.chunks_exact(size_of::<T>()).map(T::of).collect();
    let mut owner = CountingOwner::new(values);
    let panics = input.below(16);
    if panics == 14 {
        owner = owner.panic_on_borrow();
    }
    let (drops, start) = (owner.drops(), owner.as_ptr());
    let (mut builder, mut chosen) = (Tensor::builder(owner), Chosen::default());
    for _ in 0..input.below(7) {
        builder = chosen.call(builder, input);
    }
    let way = input.below(3);
    let flags = if way == 1 { Flags::READ_ONLY } else { Flags::NONE };
    let wanted = chosen.judge::<T>(&raw, start.addr(), flags);
    if panics == 14 {
        return panicking(builder, &drops, way == 1);
    }
    let found = match way {
        0 => builder.build::<T>(),
        1 => builder.build_read_only::<T>(),
        _ => return raw_memory::<T>(builder, &chosen, wanted, start, &drops, input),
    };
    let (tensor, facts) = match (found, wanted) {
        (Ok(tensor), Ok(facts)) => (tensor, facts),
        (Err(error), Err(faults)) => {
            assert_named(&error, &faults);
            return drops.expect(1, "refused");
        }
        (Ok(tensor), Err(faults)) => panic!("built {tensor:?}, although {faults:?}"),
        (Err(error), Ok(_)) => panic!("refused for {error:?}, although nothing is wrong"),
    };
    assert_says(&tensor, &facts);
    elements::check(&tensor, &facts, input);
    drops.expect(0, "built");
    ended::<T>(tensor, &drops, panics == 15, input);
    drops.expect(1, "done");
}

/// The ways to release a tensor.
fn ended<T: Value + Plain>(tensor: Tensor, drops: &Releases, panics: bool, input: &mut Input<'_>) {
    match input.below(4) {
        _ if panics => {
            // After an export to C, a panic of the owner ends in the deleter.
            let owner = tensor.into_owner::<CountingOwner<T>>().expect("what it was made of");
            let tensor = Tensor::builder(owner.panic_on_drop()).build::<T>().expect("all of it");
            if input.rarely(2) {
                let caught = catch_unwind(AssertUnwindSafe(|| drop(tensor)));
                let payload = caught.expect_err("it panics");
                assert_eq!(payload.downcast_ref(), Some(&PanicOnDrop));
            } else {
                delete(tensor.into_raw());
            }
        }
        0 => drop(tensor),
        1 => {
            let managed = tensor.into_raw();
            drops.expect(0, "exported");
            delete(managed);
        }
        2 => {
            let tensor = tensor.into_owner::<Vec<T>>().expect_err("it has another owner");
            let owner = tensor.into_owner::<CountingOwner<T>>().expect("what it was made of");
            drops.expect(0, "given back");
            drop(owner);
        }
        _ => match tensor.into_raw_legacy() {
            Ok(managed) => delete_legacy(managed),
            Err(error) => assert_eq!(error, Error::LegacyReadOnly),
        },
    }
}

/// An owner that panics when asked for its memory: it is still dropped once.
fn panicking<T: Value + Plain>(
    builder: Builder<CountingOwner<T>>,
    drops: &Releases,
    read_only: bool,
) {
    let built = catch_unwind(AssertUnwindSafe(|| match read_only {
        true => builder.build_read_only::<T>().map(drop),
        false => builder.build::<T>().map(drop),
    }));
    match built {
        Err(payload) => assert_eq!(payload.downcast_ref(), Some(&PanicOnBorrow)),
        // Rejected before the owner was asked for its memory.
        Ok(result) => assert!(result.is_err(), "built without memory"),
    }
    drops.expect(1, "panicked");
}

/// Memory given by a raw pointer: here the owner's memory, if the calls stay inside it.
fn raw_memory<T: Value + Plain>(
    builder: Builder<CountingOwner<T>>,
    chosen: &Chosen,
    wanted: Result<Facts, Vec<Error>>,
    start: *const T,
    drops: &Releases,
    input: &mut Input<'_>,
) {
    let data = start.cast::<c_void>().cast_mut();
    let flags = Flags(input.below(2) as u64);
    // SAFETY: elements are read only if the model finds them in the owner's memory.
    let found = unsafe { builder.build_raw(data, Device::CPU, flags) };
    if chosen.dtype.is_none() || chosen.shape.is_none() {
        assert!(matches!(found, Err(Error::NotChosen { .. })), "{found:?}");
        drop(found);
        return drops.expect(1, "refused");
    }
    if let (Ok(tensor), Ok(facts)) = (&found, &wanted) {
        let facts = Facts { access: Access::Shared, flags, ..facts.clone() };
        assert_says(tensor, &facts);
        elements::check(tensor, &facts, input);
    }
    match (&found, &wanted) {
        (Err(error), Ok(_)) => panic!("refused for {error:?}, although nothing is wrong"),
        (Err(error), Err(faults)) => assert_named(error, faults),
        _ => {}
    }
    drop(found);
    drops.expect(1, "done");
}

/// Copies of bytes; their number must match the shape.
fn from_bytes(input: &mut Input<'_>) {
    let dtype = input.dtype();
    let shape = if input.rarely(4) { input.numbers(2) } else { input.small_shape() };
    let strides: Vec<i64> =
        model::contiguous(&shape).into_iter().map(Option::unwrap_or_default).collect();
    let span = model::measure(&shape, &strides);
    let size = span.as_ref().ok().and_then(|span| model::size(span.len, dtype, Flags::NONE));
    let right = size.filter(|&size| size <= 4096).filter(|_| !input.rarely(4));
    let count = right.map_or_else(|| input.below(64), |size| size as usize);
    let bytes: Vec<u8> = (0..count).map(|i| (i * 31) as u8).collect();
    match Tensor::from_bytes(dtype, &shape, &bytes) {
        Ok(tensor) => {
            assert!(!model::is_impossible(dtype), "{dtype:?}");
            assert_eq!(size, Some(count as i128));
            assert_eq!((tensor.shape(), tensor.dtype()), (&shape[..], dtype));
            assert_eq!(tensor.as_bytes().expect("exclusive and contiguous"), bytes);
        }
        Err(Error::ShapeMismatch { field: ShapeField::Size, expected: wanted, found }) => {
            assert_eq!((Some(wanted as i128), found), (size, count));
            assert_ne!(wanted, found);
        }
        Err(Error::Descriptor(DescriptorError::ImpossibleDType { dtype: of, .. })) => {
            assert!(of == dtype && model::is_impossible(dtype));
        }
        Err(error) => {
            let faults = span.err().unwrap_or_default();
            let too_large = error
                == Error::Descriptor(DescriptorError::SizeOverflow { what: "byte size" })
                && size.is_none();
            assert!(too_large || faults.contains(&error), "{error:?}, wanted one of {faults:?}");
        }
    }
}
