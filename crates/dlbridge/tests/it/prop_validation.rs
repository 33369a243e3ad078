//! Random descriptors: none panics, and each is either refused, with one release, or gives
//! metadata that agree with one another.
//! Chosen descriptors are in `validation.rs` and `odd_but_legal.rs`.

use std::ptr;

use crate::common::{import, import_legacy, offsets, take_back};
use dlbridge::{
    Access, DType, Device, DeviceKind, Error, Flags, MAX_RANK, Tensor, TypeCode, layout,
};
use dlbridge_testing::Foreign;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Bytes that each producer has.
const MEMORY: usize = 256;

#[derive(Clone, Debug)]
struct Descriptor {
    major: u32,
    minor: u32,
    flags: u64,
    dtype: DType,
    device: Device,
    ndim: i32,
    shape: Vec<i64>,
    has_shape: bool,
    strides: Option<Vec<i64>>,
    data: Data,
    byte_offset: u64,
}

#[derive(Clone, Debug)]
enum Data {
    Own(usize),
    At(usize),
}

/// Mostly ordinary numbers, so that whole descriptors are ordinary now and then.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        12 => 0..4_i64,
        4 => -4..0_i64,
        1 => select(&[i64::MIN, i64::MAX, -1, 1 << 62, 1 << 32][..]),
        1 => any::<i64>(),
    ]
}

fn dtype() -> impl Strategy<Value = DType> {
    let wild = (any::<u8>(), any::<u8>(), any::<u16>());
    prop_oneof![
        6 => select(DType::NAMED),
        1 => (select(DType::NAMED), 0..5_u16).prop_map(|(dtype, lanes)| dtype.with_lanes(lanes)),
        1 => wild.prop_map(|(code, bits, lanes)| DType { code: TypeCode(code), bits, lanes }),
    ]
}

fn device() -> impl Strategy<Value = Device> {
    prop_oneof![
        6 => Just(Device::CPU),
        2 => select(DeviceKind::ALL).prop_map(|kind| Device::new(kind, 0)),
        1 => any::<(i32, i32)>().prop_map(|(kind, id)| Device::new(DeviceKind(kind), id)),
    ]
}

fn descriptor() -> impl Strategy<Value = Descriptor> {
    let rank = prop_oneof![15 => 0..5_i32, 1 => select(&[-1, 64, 65, i32::MIN, i32::MAX][..])];
    let lists = rank.prop_flat_map(|ndim| {
        let len = usize::try_from(ndim).unwrap_or(0).min(MAX_RANK + 1);
        let strides = prop_oneof![1 => Just(None), 4 => vec(number(), len).prop_map(Some)];
        (Just(ndim), vec(number(), len), prop::bool::weighted(0.95), strides)
    });
    let data = prop_oneof![
        8 => (0..MEMORY).prop_map(Data::Own),
        1 => Just(Data::At(0)),
        1 => any::<usize>().prop_map(Data::At),
        1 => (0..64_usize).prop_map(|below| Data::At(usize::MAX - below)),
    ];
    let byte_offset = prop_oneof![6 => Just(0), 3 => 0..64_u64, 1 => any::<u64>()];
    let version = (prop_oneof![15 => Just(1), 1 => any::<u32>()], any::<u32>());
    let flags = prop_oneof![6 => 0..8_u64, 1 => any::<u64>()];
    (version, flags, dtype(), device(), lists, data, byte_offset).prop_map(
        |((major, minor), flags, dtype, device, lists, data, byte_offset)| {
            let (ndim, shape, has_shape, strides) = lists;
            let (major, minor) = (major, minor);
            Descriptor {
                major,
                minor,
                flags,
                dtype,
                device,
                ndim,
                shape,
                has_shape,
                strides,
                data,
                byte_offset,
            }
        },
    )
}

impl Descriptor {
    fn foreign(&self) -> Foreign {
        let bytes: Vec<u8> = (0..=255).collect();
        // a list shorter than `ndim` would be a broken promise, so wild ranks get null lists
        let lists = usize::try_from(self.ndim).is_ok_and(|ndim| ndim == self.shape.len());
        let mut foreign = Foreign::of_bytes(self.dtype, &self.shape, &bytes)
            .version(self.major, self.minor)
            .flags(Flags(self.flags))
            .device(self.device)
            .ndim(self.ndim)
            .byte_offset(self.byte_offset);
        foreign = match &self.strides {
            Some(strides) if lists => foreign.strides(strides),
            _ => foreign.null_strides(),
        };
        if !self.has_shape || !lists {
            foreign = foreign.null_shape();
        }
        match self.data {
            Data::Own(at) => foreign.data_at(at),
            Data::At(address) => foreign.data(ptr::without_provenance_mut(address)),
        }
    }

    /// The bytes of all elements in row-major order, if they are whole bytes and lie inside the
    /// producer's memory.
    fn bytes(&self, tensor: &Tensor) -> Option<Vec<u8>> {
        let Data::Own(at) = self.data else { return None };
        if !tensor.device().is_host_accessible() || tensor.len() > 1000 {
            return None;
        }
        let size = layout::nbytes(1, tensor.dtype(), tensor.flags()).ok()?;
        if layout::nbytes(8, tensor.dtype(), tensor.flags()).ok()? != 8 * size {
            return None;
        }
        let origin = at as i128 + i128::from(self.byte_offset);
        let mut bytes = Vec::new();
        for offset in offsets(tensor.shape(), tensor.strides()) {
            let start = origin + offset * size as i128;
            for byte in start..start + size as i128 {
                bytes.push(u8::try_from(byte).ok().filter(|&byte| usize::from(byte) < MEMORY)?);
            }
        }
        Some(bytes)
    }
}

/// What has to be so of every tensor that was let through.
fn consistent(tensor: &Tensor, given: &Descriptor) {
    assert_eq!((tensor.dtype(), tensor.device()), (given.dtype, given.device));
    assert_eq!(tensor.rank() as i128, i128::from(given.ndim));
    assert_eq!(tensor.strides().len(), tensor.rank());
    assert!(given.ndim == 0 || tensor.shape() == given.shape);
    let span = layout::span(tensor.shape(), tensor.strides()).expect("it was measured");
    assert_eq!((tensor.len(), tensor.is_empty()), (span.len, span.len == 0));
    let size = |count| layout::nbytes(count, tensor.dtype(), tensor.flags()).expect("it fits");
    assert_eq!(tensor.nbytes(), size(span.len));
    assert_eq!(tensor.is_contiguous(), layout::is_contiguous(tensor.shape(), tensor.strides()));
    assert!(!format!("{tensor:?}").is_empty());
    if !tensor.is_empty() {
        assert!(!tensor.data_ptr().is_null());
        if tensor.device().kind.has_addresses() {
            let origin = tensor.data_ptr().addr();
            assert!(origin.checked_sub(size(span.low.unsigned_abs())).is_some());
            assert!(origin.checked_add(size(span.high.unsigned_abs() + 1)).is_some());
            assert_eq!(tensor.byte_offset(), 0);
        } else {
            assert_eq!(tensor.byte_offset(), given.byte_offset);
        }
    }
    assert_eq!(tensor.access(), Access::Shared);
}

fn same(one: &Tensor, other: &Tensor) {
    assert_eq!((one.shape(), one.strides()), (other.shape(), other.strides()));
    assert_eq!((one.dtype(), one.device()), (other.dtype(), other.device()));
    assert_eq!((one.data_ptr(), one.byte_offset()), (other.data_ptr(), other.byte_offset()));
}

fn check(given: &Descriptor, through: fn(Foreign) -> Result<Tensor, Error>) {
    let foreign = given.foreign();
    let releases = foreign.releases();
    let tensor = match through(foreign) {
        Ok(tensor) => tensor,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return releases.expect(1, "refused");
        }
    };
    consistent(&tensor, given);
    if let Some(bytes) = given.bytes(&tensor) {
        let copy = tensor.to_contiguous().expect("whole bytes of host memory");
        assert_eq!(copy.nbytes(), bytes.len());
        let as_bytes = Foreign::of_bytes(DType::U8, &[bytes.len() as i64], &[]);
        let read = import(as_bytes.data(copy.data_ptr())).expect("legal");
        assert_eq!(read.view::<u8>().expect("host").to_vec(), bytes);
    }
    let again = import(given.foreign().version(1, 3)).or_else(|_| import_legacy(given.foreign()));
    let again = take_back(again.expect("it was let through before").into_raw());
    assert_eq!((again.shape(), again.strides()), (tensor.shape(), tensor.strides()));
    let copy = take_back(tensor.into_raw());
    consistent(&copy, &Descriptor { byte_offset: copy.byte_offset(), ..given.clone() });
    releases.expect(0, "exported");
    let managed = copy.into_raw();
    let copy = take_back(managed);
    let known = copy.as_tensor_ref();
    assert_eq!(known.shape(), copy.shape());
    same(&copy, &take_back_of_share(&copy));
    drop(copy);
    releases.expect(1, "dropped");
}

/// The same memory once more, by way of a descriptor that is only borrowed.
fn take_back_of_share(tensor: &Tensor) -> Tensor {
    let raw = tensor.as_raw();
    let foreign = Foreign::of_bytes(tensor.dtype(), tensor.shape(), &[])
        .strides(tensor.strides())
        .device(tensor.device())
        .flags(tensor.flags())
        .byte_offset(raw.byte_offset)
        .data(raw.data);
    import(foreign).expect("it was let through before")
}

proptest! {
    #[test]
    fn a_random_descriptor_is_refused_or_consistent(given in descriptor()) {
        check(&given, import);
        let legacy = Descriptor { flags: 0, major: 1, ..given };
        check(&legacy, import_legacy);
    }
}
