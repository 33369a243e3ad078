//! Holes that other DLPack crates have been shown to have: each has a test that it is not here.
//!
//! | hole | where it is shut |
//! | --- | --- |
//! | an owner that borrows is freed after what it borrows | `ui/outlives.rs::borrowing_owner` |
//! | slices ignore strides | here; `strides.rs` |
//! | slices forget the byte offset, or add it twice | here; `versions.rs` |
//! | a mutable tensor from a shared reference | here; `ui/aliases.rs::mutable_from_shared_view` |
//! | `&self` gives `&mut [T]` | `ui/aliases.rs::written_through_shared_reference` |
//! | a public field holds the invariant | here; `ui/bounds.rs::descriptor_is_private` |
//! | foreign bytes become `bool` | `elements.rs`, `ui/bounds.rs::bool_slice` |
//! | a lie in a safe trait is unsound | `ui/duties.rs::element_is_unsafe` |
//! | a view outlives what it was made from | `ui/outlives.rs::view_outlives_tensor` |
//! | an unknown code is undefined behaviour | the fuzz target `gate` |
//! | a body is read before its version | here; `validation.rs` |
//! | a descriptor is dereferenced by safe code | `ui/duties.rs::import_is_unsafe` |
//! | a pointer to a local is exported | here |
//! | products overflow | `validation.rs`, the fuzz target `gate` |
//! | input ends in a panic | the fuzz targets `gate` and `layout` |
//! | a deleter of one ABI is called as the other's | here |
#![allow(unsafe_code, reason = "the holes are raw pointers")]

use std::ffi::c_void;

use crate::common::{delete, delete_legacy, import, take_back};
use dlbridge::sys::{
    DLManagedTensor, DLManagedTensorVersioned, DLManagedTensorVersionedDeleter, DLPackVersion,
};
use dlbridge::{Access, DescriptorError, Error, Tensor, TensorMut};
use dlbridge_testing::{Foreign, Releases};

#[test]
fn a_reversed_tensor_gives_no_slice_past_its_end() {
    let make = || Foreign::new(&[4], &[1, 2, 3, 4]).strides(&[-1]).data_at(12);
    let mut tensor = import(make().class(Access::Exclusive)).expect("legal");
    let wanted = Error::NotContiguous { axis: 0, stride: -1, expected: 1 };
    assert_eq!(tensor.as_slice::<i32>(), Err(wanted.clone()));
    assert_eq!(tensor.as_slice_mut::<i32>(), Err(wanted.clone()));
    assert_eq!(<&[i32]>::try_from(&tensor), Err(wanted));
    assert!(tensor.view::<i32>().expect("host").as_cells().is_none());
    assert_eq!(Vec::<i32>::try_from(&tensor), Ok(vec![4, 3, 2, 1]));
}

#[test]
fn a_byte_offset_is_applied_once_whichever_way_elements_are_read() {
    let make = || Foreign::new(&[2], &[1_u8, 2, 3, 4]).byte_offset(1).class(Access::Exclusive);
    let mut tensor = import(make()).expect("legal");
    assert_eq!(tensor.as_slice::<u8>(), Ok(&[2, 3][..]));
    assert_eq!(tensor.as_slice_mut::<u8>(), Ok(&mut [2, 3][..]));
    assert_eq!(tensor.view::<u8>().expect("host").get([0]), Some(2));
    assert_eq!(tensor.to_contiguous().expect("host").as_slice::<u8>(), Ok(&[2, 3][..]));
    let tensor = take_back(tensor.into_raw());
    assert_eq!(tensor.view::<u8>().expect("host").to_vec(), [2, 3]);
    let tensor = take_back(Tensor::from(tensor.into_frozen()).into_raw());
    assert_eq!(tensor.view::<u8>().expect("host").to_vec(), [2, 3]);
}

/// Compiles for a type only if no mutable tensor can be made of a shared reference to it: it has
/// one way to call `check` then, and two otherwise.
trait NotFromShared<Ambiguous> {
    fn check() {}
}

impl<T> NotFromShared<()> for T {}

impl<T: ?Sized + 'static> NotFromShared<u8> for T where TensorMut<'static>: From<&'static T> {}

#[test]
fn no_shared_reference_makes_a_mutable_tensor() {
    <Vec<i32> as NotFromShared<_>>::check();
    <Box<[i32]> as NotFromShared<_>>::check();
    <&mut [i32] as NotFromShared<_>>::check();
    <Tensor as NotFromShared<_>>::check();
    <TensorMut<'static> as NotFromShared<_>>::check();
    #[cfg(feature = "ndarray-0_17")]
    {
        <ndarray::Array1<i32> as NotFromShared<_>>::check();
        <ndarray::ArcArray1<i32> as NotFromShared<_>>::check();
        <ndarray::ArrayViewMut1<'static, i32> as NotFromShared<_>>::check();
    }
}

#[cfg(feature = "ndarray-0_17")]
#[test]
fn a_shared_borrow_of_a_mutable_view_is_read_only() {
    let mut array = ndarray::array![1, 2, 3];
    let view = array.view_mut();
    let borrow = || dlbridge::TensorRef::from(&view);
    for tensor in [borrow(), borrow()] {
        assert_eq!((tensor.access(), tensor.is_read_only()), (Access::Frozen, true));
    }
}

#[test]
fn a_callee_that_scribbles_over_a_borrowed_descriptor_changes_nothing_here() {
    let mut values = [1, 2, 3];
    let mut tensor = TensorMut::from(&mut values[..]);
    tensor.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends.
        let descriptor = unsafe { &mut *descriptor };
        descriptor.ndim = 7;
        descriptor.shape = std::ptr::null_mut();
        descriptor.data = std::ptr::null_mut();
    });
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn an_export_outlives_the_function_that_returned_it() {
    fn give() -> *mut DLManagedTensorVersioned {
        let values: Vec<u16> = (0..50).collect();
        Tensor::builder(values).shape([5, 10]).build::<u16>().expect("it fits").into_raw()
    }
    fn use_the_stack() -> u64 {
        std::hint::black_box([0x5a5a_5a5a_u64; 512]).iter().fold(0, |x, y| x ^ y)
    }

    let managed = give();
    assert_eq!(use_the_stack(), 0);
    let tensor = take_back(managed);
    assert_eq!(tensor.shape(), [5, 10]);
    assert_eq!(tensor.view::<u16>().expect("host").iter().map(u32::from).sum::<u32>(), 1225);
}

/// As much of a managed tensor as stays in place in every major version, and no more.
#[repr(C)]
struct Future {
    version: DLPackVersion,
    manager_ctx: *mut c_void,
    deleter: Option<DLManagedTensorVersionedDeleter>,
}

unsafe extern "C" fn delete_future(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: made below, and deleted once.
    let future = unsafe { Box::from_raw(tensor.cast::<Future>()) };
    // SAFETY: the counter was leaked into the context.
    let releases = unsafe { Box::from_raw(future.manager_ctx.cast::<Releases>()) };
    releases.record();
}

#[test]
fn of_another_major_version_only_what_stays_in_place_is_read() {
    let releases = Releases::default();
    let future = Box::new(Future {
        version: DLPackVersion { major: 2, minor: 0 },
        manager_ctx: Box::into_raw(Box::new(releases.clone())).cast(),
        deleter: Some(delete_future),
    });
    assert_eq!(size_of::<Future>(), std::mem::offset_of!(DLManagedTensorVersioned, flags));
    let future = Box::into_raw(future).cast::<DLManagedTensorVersioned>();
    // SAFETY: what validation reads of another version is there; a checker of memory sees the rest.
    let result = unsafe { Tensor::from_raw(future) };
    assert_eq!(
        result.map(drop),
        Err(DescriptorError::UnsupportedVersion { major: 2, minor: 0 }.into())
    );
    releases.expect(0, "still the caller's");
    // SAFETY: rejected, and so still the test's.
    unsafe { dlbridge::ffi::release_raw(future) };
    releases.expect(1, "released, though not understood");
}

#[test]
fn each_abi_is_deleted_with_its_own_pointer() {
    let versioned = Tensor::from(vec![1_u8; 9]).into_raw();
    let legacy: *mut DLManagedTensor =
        Tensor::from(vec![2_u8; 9]).into_raw_legacy().expect("writable");
    // SAFETY: owned by the test.
    let context = unsafe { (*versioned).manager_ctx };
    assert_eq!(context, versioned.cast(), "the context is the header itself");
    // SAFETY: the same.
    let context = unsafe { (*legacy).manager_ctx };
    assert_eq!(context, legacy.cast());
    delete(versioned);
    delete_legacy(legacy);
}

#[test]
fn gaps_between_elements_are_never_read() {
    struct Bytes(*mut u8);
    // SAFETY: each thread touches bytes that the other does not.
    unsafe impl Send for Bytes {}

    let mut bytes = vec![0_u8; 200];
    let data = bytes.as_mut_ptr();
    let gaps = Bytes(data.wrapping_add(1));
    let foreign = Foreign::new::<u8>(&[100], &[]).data(data.cast()).strides(&[2]);
    let tensor = import(foreign).expect("legal");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let Bytes(gaps) = { gaps };
            for i in 0..99 {
                // SAFETY: the byte after an element, which is in no tensor.
                unsafe { gaps.wrapping_add(2 * i).write(255) };
            }
        });
        let view = tensor.view::<u8>().expect("host");
        assert_eq!(view.iter().map(u32::from).sum::<u32>(), 0);
        assert_eq!(view.to_vec(), [0; 100]);
        assert_eq!(tensor.to_contiguous().expect("host").as_slice::<u8>(), Ok(&[0; 100][..]));
    });
}
