//! What the gate must let through, however odd: each a fixture for code that reads tensors.
//! What it refuses is in `validation.rs`.
#![allow(unsafe_code, reason = "one fixture changes a descriptor that was made")]

use std::ffi::c_void;
use std::ptr;

use crate::common::{import, import_legacy};
use dlbridge::{DType, Device, DeviceKind, Error, Flags, Tensor, TypeCode};
use dlbridge_testing::{Foreign, Releases};

fn address(at: usize) -> *mut c_void {
    ptr::without_provenance_mut(at)
}

/// Both ABIs must let it through, and release it once.
#[track_caller]
fn accepted(make: impl Fn() -> Foreign, check: impl Fn(&Tensor)) {
    let both: [fn(Foreign) -> Result<Tensor, Error>; 2] = [import, import_legacy];
    for through in both {
        let foreign = make();
        let releases: Releases = foreign.releases();
        let tensor = through(foreign).expect("legal");
        check(&tensor);
        drop(tensor);
        releases.expect(1, "dropped");
    }
}

#[test]
fn null_strides_mean_contiguous_whatever_the_version_says() {
    for minor in [0, 1, 2, 3, 9] {
        let make = || Foreign::new(&[2, 1, 3], &[1, 2, 3, 4, 5, 6]).null_strides();
        accepted(
            || make().version(1, minor),
            |tensor| {
                assert_eq!(tensor.strides(), [3, 3, 1]);
                assert!(tensor.is_contiguous());
                assert!(!dlbridge::ffi::raw_fields(tensor).expect("foreign").has_strides);
                assert_eq!(tensor.view::<i32>().expect("host").to_vec(), [1, 2, 3, 4, 5, 6]);
            },
        );
    }
}

#[test]
fn null_strides_of_an_empty_tensor_look_like_any_others() {
    let make = || Foreign::new::<f32>(&[4, 0, 3], &[]).null_strides();
    accepted(make, |tensor| assert_eq!(tensor.strides(), [3, 3, 1]));
}

#[test]
fn rank_0_needs_neither_shape_nor_strides() {
    let make = || Foreign::new(&[], &[7_i64]).null_shape().null_strides();
    accepted(make, |tensor| {
        assert_eq!((tensor.shape(), tensor.strides()), (&[][..], &[][..]));
        assert_eq!((tensor.rank(), tensor.len(), tensor.nbytes()), (0, 1, 8));
        assert_eq!(tensor.view::<i64>().expect("host").item(), Ok(7));
    });
}

#[test]
fn of_rank_0_the_lists_may_be_anywhere() {
    for at in [address(1), address(usize::MAX)] {
        let source = Foreign::new(&[], &[7_i64]);
        let releases = source.releases();
        let managed = source.into_versioned();
        // SAFETY: made just now; a list of no numbers is not read.
        unsafe { (*managed).dl_tensor.shape = at.cast() };
        // SAFETY: the same.
        unsafe { (*managed).dl_tensor.strides = at.cast() };
        // SAFETY: exported by its producer.
        let tensor = unsafe { Tensor::from_raw(managed) }.expect("legal");
        assert_eq!((tensor.shape(), tensor.strides()), (&[][..], &[][..]));
        assert_eq!(tensor.view::<i64>().expect("host").item(), Ok(7));
        drop(tensor);
        releases.expect(1, "dropped");
    }
}

#[test]
fn without_elements_the_data_pointer_may_be_anything() {
    for data in [ptr::null_mut(), address(1), address(usize::MAX)] {
        for shape in [&[0][..], &[0, 3], &[3, 0], &[0, 0, 0]] {
            let make = || Foreign::new::<f64>(shape, &[]).data(data);
            accepted(make, |tensor| {
                assert_eq!(tensor.data_ptr(), data);
                assert_eq!((tensor.len(), tensor.nbytes()), (0, 0));
                assert!(tensor.is_empty() && tensor.is_contiguous());
                let view = tensor.view::<f64>().expect("host");
                assert_eq!((view.to_vec(), view.iter().next()), (vec![], None));
                assert_eq!(tensor.to_contiguous().expect("host").shape(), shape);
            });
        }
    }
}

#[test]
fn without_elements_strides_and_offset_may_be_anything() {
    let make = || {
        let foreign = Foreign::new::<f32>(&[3, 0, 2], &[]).data(address(usize::MAX));
        foreign.strides(&[i64::MIN, i64::MAX, i64::MIN]).byte_offset(u64::MAX)
    };
    accepted(make, |tensor| {
        assert_eq!(tensor.strides(), [i64::MIN, i64::MAX, i64::MIN]);
        assert_eq!(tensor.byte_offset(), 0);
        assert_eq!(dlbridge::ffi::raw_fields(tensor).expect("foreign").byte_offset, u64::MAX);
        assert!(tensor.is_contiguous());
        assert_eq!(tensor.view::<f32>().expect("host").iter().count(), 0);
    });
}

#[test]
fn without_elements_no_index_leads_anywhere() {
    let make = || Foreign::new::<f64>(&[5, 5, 0], &[]).strides(&[i64::MAX, i64::MIN, 1]);
    accepted(make, |tensor| {
        let view = tensor.view::<f64>().expect("host");
        assert_eq!(view.get(&[4, 4, 0]), None);
        assert_eq!(view.get(&[5, 0, 0]), None);
    });
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn an_empty_axis_among_huge_ones_is_empty() {
    let make = || Foreign::new::<u8>(&[i64::MAX, 0], &[]);
    accepted(make, |tensor| assert_eq!(tensor.len(), 0));
    let make = || Foreign::new::<u8>(&[1 << 31, 0, 1 << 31], &[]).null_strides();
    accepted(make, |tensor| {
        assert_eq!(tensor.strides(), [1 << 31, 1 << 31, 1]);
        assert_eq!(tensor.view::<u8>().expect("host").to_vec(), [0_u8; 0]);
    });
}

#[test]
fn an_axis_of_extent_1_may_have_any_stride() {
    let make = || Foreign::new(&[1, 2, 1], &[5_u16, 6]).strides(&[i64::MIN, 1, i64::MAX]);
    accepted(make, |tensor| {
        assert!(tensor.is_contiguous());
        assert_eq!(tensor.view::<u16>().expect("host").to_vec(), [5, 6]);
    });
}

#[test]
fn negative_and_zero_strides_are_legal() {
    let make = || Foreign::new(&[2, 3], &[1, 2, 3]).strides(&[0, -1]).data_at(8);
    accepted(make, |tensor| {
        assert!(!tensor.is_contiguous());
        let view = tensor.view::<i32>().expect("host");
        assert_eq!(view.to_vec(), [3, 2, 1, 3, 2, 1]);
    });
}

#[test]
fn an_unknown_dtype_is_carried() {
    for dtype in [
        DType { code: TypeCode(19), bits: 8, lanes: 1 },
        DType { code: TypeCode(255), bits: 255, lanes: u16::MAX },
        DType { code: TypeCode(129), bits: 1, lanes: 3 },
        DType::new(TypeCode::INT, 4),
        DType::new(TypeCode::OPAQUE_HANDLE, 64),
    ] {
        let make = || Foreign::of_bytes(dtype, &[0], &[]).shape_of_one();
        accepted(make, |tensor| {
            assert_eq!(tensor.dtype(), dtype);
            let error = tensor.view::<u8>().map(drop).expect_err("no Rust type reads it");
            assert_eq!(error, Error::DTypeMismatch { found: dtype, expected: DType::U8 });
        });
    }
}

/// Memory for one element of the largest dtype.
trait ShapeOfOne {
    fn shape_of_one(self) -> Self;
}

impl ShapeOfOne for Foreign {
    fn shape_of_one(self) -> Self {
        // a rank of 0 leaves the list of one extent unread
        static ELEMENT: [u8; 4] = [0; 4];
        self.ndim(0).data(ELEMENT.as_ptr().cast_mut().cast())
    }
}

#[test]
fn an_unknown_device_is_carried() {
    for kind in [0, 5, 6, 22, 99, -1, i32::MIN, i32::MAX] {
        let device = Device::new(DeviceKind(kind), -7);
        let make = || Foreign::new(&[2], &[1, 2]).device(device).byte_offset(u64::MAX);
        accepted(make, |tensor| {
            assert_eq!(tensor.device(), device);
            assert_eq!(tensor.byte_offset(), u64::MAX, "a handle keeps its offset");
            let error = tensor.view::<i32>().map(drop).expect_err("nobody knows how to read it");
            assert_eq!(error, Error::NotHostAccessible { device });
            assert_eq!(tensor.to_contiguous().map(drop), Err(Error::NotHostAccessible { device }));
        });
    }
}

#[test]
fn a_newer_minor_version_is_the_same_layout() {
    let foreign = Foreign::new(&[2], &[1.0_f32, 2.0]).version(1, u32::MAX);
    let tensor = import(foreign).expect("legal");
    assert_eq!(dlbridge::ffi::raw_fields(&tensor).expect("foreign").version, Some((1, u32::MAX)));
    assert_eq!(tensor.view::<f32>().expect("host").to_vec(), [1.0, 2.0]);
}

#[test]
fn unknown_flags_are_carried() {
    let flags = Flags(1 << 63 | 1 << 17);
    let tensor = import(Foreign::new(&[1], &[1_u8]).flags(flags)).expect("legal");
    assert_eq!(tensor.flags(), flags);
    assert!(!tensor.is_read_only() && !tensor.is_copied());
}

#[test]
fn the_highest_rank_is_64() {
    let make = || Foreign::new(&[1; 64], &[3_u8]);
    accepted(make, |tensor| {
        assert_eq!(tensor.rank(), 64);
        assert_eq!(tensor.view::<u8>().expect("host").get(&[0; 64]), Some(3));
    });
    let make = || Foreign::new(&[0; 64], &[3_u8]).null_strides();
    accepted(make, |tensor| assert_eq!(tensor.strides(), [1; 64]));
}

#[test]
#[cfg_attr(target_pointer_width = "32", ignore = "its sizes are of 64 bits")]
fn lengths_that_just_fit_are_legal() {
    // one byte, broadcast as often as there are addresses
    let make = || Foreign::new(&[i64::MAX], &[9_u8]).strides(&[0]);
    accepted(make, |tensor| {
        assert_eq!(tensor.len(), isize::MAX as usize);
        assert_eq!(tensor.nbytes(), isize::MAX as usize);
        let view = tensor.view::<u8>().expect("host");
        assert_eq!(view.get(&[isize::MAX as usize - 1]), Some(9));
        assert_eq!(view.get(&[isize::MAX as usize]), None);
        assert_eq!(view.iter().nth(12345), Some(9));
        assert_eq!(view.iter().len(), isize::MAX as usize);
    });
}

#[test]
fn the_last_byte_of_the_address_space_is_legal_for_device_memory() {
    let make = || {
        let foreign = Foreign::new(&[1], &[0_u8]).device(Device::cuda(0));
        foreign.data(address(usize::MAX - 1))
    };
    accepted(make, |tensor| assert_eq!(tensor.data_ptr(), address(usize::MAX - 1)));
}

#[test]
fn packed_elements_are_measured_in_bits() {
    let dtype = DType::FLOAT4_E2M1FN;
    let make = || Foreign::of_bytes(dtype, &[3], &[0x21, 0x03]);
    accepted(make, |tensor| assert_eq!((tensor.len(), tensor.nbytes()), (3, 2)));
    let padded = Foreign::of_bytes(dtype, &[3], &[1, 2, 3]).flags(Flags::SUBBYTE_PADDED);
    let tensor = import(padded).expect("legal");
    assert_eq!((tensor.len(), tensor.nbytes()), (3, 3));
    let six = Foreign::of_bytes(DType::FLOAT6_E3M2FN, &[3], &[0; 3]);
    assert_eq!(import(six).expect("legal").nbytes(), 3);
}
