//! The builder: bounds at every edge, and owners that do not return the same memory twice.
#![allow(unsafe_code, reason = "building from a pointer is unsafe by nature")]

use std::ffi::c_void;
use std::ptr;

use dlbridge::{
    Access, Builder, DType, DescriptorError, Device, DeviceKind, Error, Flags, ShapeField, Tensor,
    TypeCode,
};
use dlbridge_testing::CountingOwner;
use dlbridge_testing::conformance::{self, Expected};

use crate::common::delete;

fn ten(shape: &[i64], strides: &[i64], offset: usize) -> Result<Tensor, Error> {
    let owner: Vec<u16> = (0..10).collect();
    Tensor::builder(owner).shape(shape).strides(strides).offset(offset).build::<u16>()
}

#[track_caller]
fn refused(result: Result<Tensor, Error>, wanted: &Error) {
    assert_eq!(result.map(drop), Err(wanted.clone()));
}

#[test]
fn what_is_not_chosen_is_taken_from_the_owner() {
    let tensor = Tensor::builder(vec![1_u16, 2, 3]).build::<u16>().expect("it fits");
    assert_eq!((tensor.shape(), tensor.strides()), (&[3][..], &[1][..]));
    assert_eq!((tensor.dtype(), tensor.device()), (DType::U16, Device::CPU));
    assert_eq!((tensor.access(), tensor.flags()), (Access::Exclusive, Flags::NONE));
    let tensor = Tensor::builder(vec![1_u16, 2, 3]).offset(1).build_read_only::<u16>();
    let tensor = tensor.expect("it fits");
    assert_eq!(tensor.as_slice::<u16>(), Ok(&[2, 3][..]));
    assert_eq!((tensor.access(), tensor.flags()), (Access::Frozen, Flags::READ_ONLY));
    let tensor = Tensor::builder(vec![1_u16, 2, 3]).shape([3, 1]).build::<u16>().expect("fits");
    assert_eq!(tensor.strides(), [1, 1]);
}

#[test]
fn the_error_says_which_bytes_of_how_many() {
    let outside = |low, high| Error::OutOfBounds { low, high, size: 20 };
    refused(ten(&[11], &[1], 0), &outside(0, 22));
    refused(ten(&[10], &[1], 1), &outside(2, 22));
    refused(ten(&[1], &[1], 10), &outside(20, 22));
    refused(ten(&[10], &[-1], 8), &outside(-2, 18));
    refused(ten(&[2], &[-1], 0), &outside(-2, 2));
    refused(ten(&[2, 2], &[-6, 5], 5), &outside(-2, 22));
    refused(ten(&[0], &[1], 11), &outside(22, 22));
    assert!(ten(&[10], &[-1], 9).is_ok());
    assert!(ten(&[0], &[1], 10).is_ok());
}

#[test]
fn memory_may_be_read_as_another_dtype() {
    let owner: Vec<u32> = vec![0x0403_0201_u32.to_le(), 0x0807_0605_u32.to_le()];
    let data = owner.as_ptr();
    conformance::owner(|| {
        let builder = Tensor::builder(vec![0x0403_0201_u32.to_le(), 0x0807_0605_u32.to_le()]);
        let tensor = builder.dtype(DType::U8).build::<u32>().expect("it fits");
        (tensor, Expected::new(&[8], &[1_u8, 2, 3, 4, 5, 6, 7, 8]))
    });
    let builder = Tensor::builder(owner).dtype(DType::U16).shape([2]).strides([2]).offset(1);
    let tensor = builder.build::<u32>().expect("it fits");
    assert_eq!(tensor.data_ptr().addr(), data.addr() + 2);
    assert_eq!(tensor.view::<u16>().expect("u16").to_vec(), [0x0403, 0x0807].map(u16::to_le));
}

/// An owner that returns other memory each time, as a safe implementation may.
struct Fickle {
    lengths: Vec<usize>,
    memory: Vec<Vec<u8>>,
}

impl AsMut<[u8]> for Fickle {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.lengths.pop().unwrap_or(0);
        self.memory.push(vec![7; len]);
        self.memory.last_mut().expect("pushed just now")
    }
}

#[test]
fn an_owner_that_returns_less_the_second_time_is_out_of_bounds() {
    let owner = Fickle { lengths: vec![3, 100], memory: vec![] };
    let wanted = Error::OutOfBounds { low: 0, high: 100, size: 3 };
    refused(Tensor::builder(owner).build::<u8>(), &wanted);
    let owner = Fickle { lengths: vec![3], memory: vec![] };
    let wanted = Error::OutOfBounds { low: 0, high: 4, size: 3 };
    refused(Tensor::builder(owner).shape([4]).build::<u8>(), &wanted);
}

#[test]
fn an_owner_that_returns_other_memory_each_time_is_asked_no_more_once_it_is_a_tensor() {
    let owner = Fickle { lengths: vec![50, 9, 4, 3], memory: vec![] };
    let mut tensor = Tensor::builder(owner).build::<u8>().expect("it grew in between");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[7; 3][..]));
    tensor.as_slice_mut::<u8>().expect("exclusive").fill(8);
    assert_eq!(tensor.view::<u8>().expect("u8").to_vec(), [8; 3]);
    let owner = tensor.into_owner::<Fickle>().expect("it is the owner");
    assert_eq!(owner.lengths, [50, 9], "asked twice: for the size, then for the memory");
    assert_eq!(owner.memory, [vec![7; 3], vec![8, 8, 8, 7]]);
}

#[test]
fn an_owner_of_two_element_types_is_borrowed_as_the_one_that_was_asked_for() {
    struct Both(Vec<u8>, Vec<f64>);
    impl AsRef<[u8]> for Both {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl AsRef<[f64]> for Both {
        fn as_ref(&self) -> &[f64] {
            &self.1
        }
    }

    let build = || Tensor::builder(Both(vec![1, 2, 3], vec![0.5]));
    let tensor = build().build_read_only::<f64>().expect("it fits");
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[0.5][..]));
    let tensor = build().shape([3]).build_read_only::<u8>().expect("it fits");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn a_counting_owner_conforms() {
    conformance::owner(|| {
        let owner = CountingOwner::new((0..12).collect::<Vec<i32>>());
        let values = [11, 9, 7, 5, 3, 1];
        let expected = Expected::new(&[2, 3], &values).strides(&[-6, -2]);
        let expected = expected.releases(owner.drops()).at(owner.as_ptr().wrapping_add(11));
        let builder = Tensor::builder(owner).shape([2, 3]).strides([-6, -2]).offset(11);
        (builder.build::<i32>().expect("it fits"), expected)
    });
    conformance::owner(|| {
        let owner = CountingOwner::new([1.5_f32, 2.5]);
        let expected = Expected::new(&[2], &[1.5_f32, 2.5]).releases(owner.drops());
        let expected = expected.at(owner.as_ptr()).read_only();
        (Tensor::builder(owner).build_read_only::<f32>().expect("it fits"), expected)
    });
}

#[test]
fn zeros_are_zero_and_well_aligned() {
    let mut tensor = Tensor::zeros(DType::F64, [3, 5]).expect("fits");
    assert_eq!(tensor.as_slice::<f64>(), Ok(&[0.0; 15][..]));
    assert_eq!(tensor.data_ptr().addr() % 64, 0);
    assert_eq!(tensor.flags(), Flags::NONE);
    tensor.as_slice_mut::<f64>().expect("exclusive").fill(1.0);
    let unknown = DType { code: TypeCode(200), bits: 24, lanes: 3 };
    assert_eq!(Tensor::zeros(unknown, [7]).expect("fits").nbytes(), 63);
    conformance::owner(|| {
        let tensor = Tensor::zeros(DType::U8, [2, 2]).expect("fits");
        (tensor, Expected::new(&[2, 2], &[0_u8; 4]))
    });
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn zeros_that_fit_no_memory_are_refused() {
    let overflow = |what| Error::Descriptor(DescriptorError::SizeOverflow { what });
    refused(Tensor::zeros(DType::U8, [i64::MAX, 2]), &overflow("element count"));
    refused(Tensor::zeros(DType::U16, [i64::MAX]), &overflow("byte size"));
    refused(
        Tensor::zeros(DType::U8, [-1]),
        &DescriptorError::NegativeExtent { axis: 0, extent: -1 }.into(),
    );
    refused(
        Tensor::zeros(DType::U8, [1; 65]),
        &DescriptorError::NdimOutOfRange { ndim: 65 }.into(),
    );
    // a size that fits, but not when it is rounded up to the alignment
    for len in [i64::MAX, i64::MAX - 62] {
        refused(Tensor::zeros(DType::U8, [len]), &Error::OutOfMemory { size: len as usize });
    }
    let empty = Tensor::zeros(DType::F64, [i64::MAX, 0]).expect("no elements");
    assert_eq!(empty.view::<f64>().expect("float64").get([1_i64 << 62, 0]), None);
}

#[test]
fn bytes_become_a_tensor_of_their_own() {
    let tensor = Tensor::from_bytes(DType::U8, [2, 2], &[1, 2, 3, 4]).expect("as many");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[1, 2, 3, 4][..]));
    assert_eq!((tensor.access(), tensor.flags()), (Access::Exclusive, Flags::NONE));
    let mismatch =
        |wanted, found| Error::ShapeMismatch { field: ShapeField::Size, expected: wanted, found };
    refused(Tensor::from_bytes(DType::F32, [2], &[0; 7]), &mismatch(8, 7));
    refused(Tensor::from_bytes(DType::F32, (), &[]), &mismatch(4, 0));
    let odd = Tensor::from_bytes(DType::BOOL, [2], &[0, 2]).expect("any bytes");
    assert_eq!(odd.view::<bool>().expect("bool").to_vec(), [false, true]);
    let packed = Tensor::from_bytes(DType::FLOAT4_E2M1FN, [3], &[0x21, 3]).expect("as many");
    assert_eq!(packed.nbytes(), 2);
    // found before any memory is asked for
    let huge = isize::MAX as usize;
    refused(Tensor::from_bytes(DType::U8, [huge as i64], &[0; 4]), &mismatch(huge, 4));
}

// Exports of memory that only the caller knows: of devices, or without a Rust slice.

fn address(at: usize) -> *mut c_void {
    ptr::without_provenance_mut(at)
}

fn build<O: Send + 'static>(
    builder: Builder<O>,
    data: *mut c_void,
    device: Device,
    flags: Flags,
) -> Result<Tensor, Error> {
    // SAFETY: each test describes the owner's memory, or memory that nobody reads.
    unsafe { builder.build_raw(data, device, flags) }
}

fn on_gpu(shape: &[i64]) -> Builder<CountingOwner<u8>> {
    Tensor::builder(CountingOwner::new([0_u8; 0])).dtype(DType::F32).shape(shape)
}

#[test]
fn device_memory_conforms() {
    for device in [Device::cuda(1), Device::new(DeviceKind::ROCM, 0)] {
        conformance::owner(|| {
            let owner = CountingOwner::new([0_u8; 0]);
            let expected = Expected::<f32>::on(device, &[4, 8]).releases(owner.drops());
            let expected = expected.at(address(0x7000));
            let builder = Tensor::builder(owner).dtype(DType::F32).shape([4, 8]);
            let tensor = build(builder, address(0x7000), device, Flags::NONE);
            (tensor.expect("legal"), expected)
        });
    }
}

#[test]
fn host_memory_conforms_as_memory_that_others_may_write() {
    conformance::owner(|| {
        let mut owner: Vec<f64> = vec![1.0, 2.0, 3.0];
        let data = owner.as_mut_ptr();
        let expected = Expected::new(&[3], &[1.0_f64, 2.0, 3.0]).at(data).access(Access::Shared);
        let builder = Tensor::builder(owner).dtype(DType::F64).shape([3]);
        (build(builder, data.cast(), Device::CPU, Flags::NONE).expect("legal"), expected)
    });
}

#[test]
fn the_owner_comes_back_out() {
    let owner = CountingOwner::new([1_u8, 2]);
    let (drops, data) = (owner.drops(), owner.as_ptr());
    let builder = Tensor::builder(owner).dtype(DType::U8).shape([2]);
    let tensor = build(builder, data.cast_mut().cast(), Device::CPU, Flags::NONE).expect("legal");
    let owner = tensor.into_owner::<CountingOwner<u8>>().expect("it is the owner");
    assert_eq!((owner.as_ref(), drops.count()), (&[1, 2][..], 0));
}

#[test]
fn shape_and_dtype_must_have_been_chosen() {
    let raw = |builder: Builder<Vec<u8>>| build(builder, address(64), Device::cuda(0), Flags::NONE);
    let no_dtype = raw(Tensor::builder(vec![]).shape([1]));
    assert_eq!(no_dtype.map(drop), Err(Error::NotChosen { what: "dtype" }));
    let no_shape = raw(Tensor::builder(vec![]).dtype(DType::F32));
    assert_eq!(no_shape.map(drop), Err(Error::NotChosen { what: "shape" }));
}

#[test]
fn an_offset_is_added_to_an_address_and_said_of_a_handle() {
    let gpu = build(on_gpu(&[2]).offset(3), address(0x100), Device::cuda(0), Flags::NONE);
    let gpu = gpu.expect("legal");
    assert_eq!((gpu.data_ptr(), gpu.byte_offset()), (address(0x10c), 0));
    let device = Device::new(DeviceKind::OPENCL, 0);
    let buffer = build(on_gpu(&[2]).offset(3), address(0x100), device, Flags::NONE);
    let buffer = buffer.expect("legal");
    assert_eq!((buffer.data_ptr(), buffer.byte_offset()), (address(0x100), 12));
    let managed = buffer.into_raw();
    // SAFETY: owned by the test.
    let descriptor = unsafe { (*managed).dl_tensor };
    assert_eq!((descriptor.data, descriptor.byte_offset), (address(0x100), 12));
    delete(managed);
}

#[test]
fn flags_are_said_but_the_class_stays_shared() {
    let tensor = build(on_gpu(&[2]), address(64), Device::cuda(0), Flags::READ_ONLY);
    let tensor = tensor.expect("legal");
    assert!(tensor.is_read_only());
    assert_eq!(tensor.access(), Access::Shared);
    assert_eq!(tensor.into_raw_legacy(), Err(Error::LegacyReadOnly));
}
