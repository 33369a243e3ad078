//! The suite for conversions from an owner to a [`Tensor`].
//! Each check makes its own tensor, and ends with one call of the deleter.
#![allow(unsafe_code, reason = "it does by hand what a consumer in C does")]

use std::fmt::Debug;
use std::thread;

use dlbridge_sys::{
    DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLTensor,
};

use dlbridge::{Access, Element, Error, Tensor, TensorRef};

use super::Expected;
use super::expected::check_read_only;

type Check<T> = fn(Tensor, &Expected<T>);

/// Runs everything that a conversion from an owner to a [`Tensor`] has to pass. `make` is called
/// once for each check; call the suite again for an empty owner, for ndim 0, for other strides.
///
/// It checks pointer identity (if [`Expected::at`] was said), shape and strides, the elements,
/// writing or its refusal, both ABIs there and back, the descriptor that a consumer sees, and (if
/// [`Expected::releases`] was said) that the owner is released once on every path: drop, deleter,
/// refusal, another thread, shares.
///
/// ```
/// use std::sync::Arc;
/// use dlbridge::Tensor;
/// use dlbridge_testing::conformance::{self, Expected};
///
/// conformance::owner(|| {
///     let shared: Arc<[u8]> = Arc::from([1, 2, 3]);
///     let expected = Expected::new(&[3], &[1_u8, 2, 3]).at(shared.as_ptr()).read_only();
///     (Tensor::from(shared), expected)
/// });
/// ```
///
/// # Panics
///
/// If the conversion does not conform, saying where.
#[track_caller]
pub fn owner<T>(make: impl Fn() -> (Tensor, Expected<T>))
where
    T: Element + PartialEq + Debug,
{
    let checks: [(&str, Check<T>); 9] = [
        ("made", made),
        ("written", written),
        ("dropped on another thread", dropped_elsewhere),
        ("exported, DLPack 1.x", exported),
        ("exported, DLPack before 1.0", exported_legacy),
        ("deleted on another thread", deleted_elsewhere),
        ("there and back", there_and_back),
        ("frozen", frozen),
        ("made shared", made_shared),
    ];
    for (what, check) in checks {
        let (tensor, expected) = make();
        expected.expect_releases(0, what);
        check(tensor, &expected);
        expected.expect_releases(1, what);
    }
}

fn made<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    expected.check_tensor(&tensor, expected.access, "made");
    check_read_only(&tensor, expected, "made");
    let moved = Box::new(tensor);
    expected.check_tensor(&moved, expected.access, "moved");
}

fn written<T: Element + PartialEq + Debug>(mut tensor: Tensor, expected: &Expected<T>) {
    let values = tensor.view::<T>().map(|view| view.to_vec());
    let refused = |access| match access {
        Access::Frozen => Error::ReadOnly,
        _ => Error::SharedMemory,
    };
    match (tensor.view_mut::<T>(), expected.access) {
        (Ok(mut view), Access::Exclusive) => {
            let mut reversed = values.expect("what can be written can be read");
            reversed.reverse();
            view.copy_from_slice(&reversed).expect("the same length");
            let found = tensor.view::<T>().expect("still a view").to_vec();
            assert_eq!(found, reversed, "written: elements after writing");
        }
        (Ok(_), access) => panic!("written: memory of class {access} must not be writable"),
        (Err(error), Access::Exclusive) => panic!("written: exclusive memory refuses: {error}"),
        (Err(error), access) => assert_eq!(error, refused(access), "written: why it is refused"),
    }
}

fn dropped_elsewhere<T: Element>(tensor: Tensor, _: &Expected<T>) {
    thread::spawn(move || drop(tensor)).join().expect("dropping does not panic");
}

fn exported<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    let data = tensor.data_ptr();
    let managed = tensor.into_raw();
    expected.expect_releases(0, "exported: before the deleter");
    // SAFETY: alive until its deleter is called (R2).
    let descriptor = unsafe { &*managed };
    assert_eq!(descriptor.version.major, DLPACK_MAJOR_VERSION, "exported: major version");
    let read_only = descriptor.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0;
    assert!(read_only || !expected.is_read_only(), "exported: the flag READ_ONLY is missing");
    check_descriptor(&descriptor.dl_tensor, data.addr(), expected);
    let deleter = descriptor.deleter.expect("exported: a deleter");
    // SAFETY: called once, with its own tensor (R3).
    unsafe { deleter(managed) };
}

fn exported_legacy<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    let (data, read_only) = (tensor.data_ptr(), tensor.is_read_only());
    let managed: *mut DLManagedTensor = match tensor.into_raw_legacy() {
        Ok(managed) => managed,
        Err(error) => {
            assert!(read_only, "exported legacy: writable memory was refused: {error}");
            return assert_eq!(error, Error::LegacyReadOnly, "exported legacy");
        }
    };
    assert!(!read_only, "exported legacy: that ABI cannot say read-only");
    // SAFETY: alive until its deleter is called (R2).
    let descriptor = unsafe { &*managed };
    check_descriptor(&descriptor.dl_tensor, data.addr(), expected);
    let deleter = descriptor.deleter.expect("exported legacy: a deleter");
    // SAFETY: called once, with its own tensor (R3).
    unsafe { deleter(managed) };
}

/// What real consumers need of every descriptor.
#[track_caller]
fn check_descriptor<T: Element + PartialEq + Debug>(
    descriptor: &DLTensor,
    data: usize,
    expected: &Expected<T>,
) {
    assert_eq!(descriptor.data.addr(), data, "descriptor: data");
    assert_eq!(descriptor.byte_offset, 0, "descriptor: byte offset not folded in");
    let ndim = usize::try_from(descriptor.ndim).expect("descriptor: ndim is not negative");
    assert!(ndim == 0 || !descriptor.strides.is_null(), "descriptor: strides are explicit");
    // SAFETY: the descriptor is alive and was made a moment ago (R2).
    let again = unsafe { TensorRef::from_raw(descriptor) }.expect("descriptor: accepted");
    expected.check(&again, "descriptor");
}

fn deleted_elsewhere<T: Element>(tensor: Tensor, _: &Expected<T>) {
    struct Given(*mut DLManagedTensorVersioned);
    // SAFETY: a descriptor may be deleted on any thread; that is what is tested (T4).
    unsafe impl Send for Given {}

    let given = Given(tensor.into_raw());
    let delete = move || {
        let Given(managed) = { given };
        // SAFETY: alive until the deleter is called (R2).
        let deleter = unsafe { (*managed).deleter }.expect("a deleter");
        // SAFETY: called once, with its own tensor (R3).
        unsafe { deleter(managed) };
    };
    thread::spawn(delete).join().expect("deleting does not panic");
}

fn there_and_back<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    let read_only = tensor.is_read_only();
    let managed = tensor.into_raw();
    // SAFETY: exported here, to no other consumer (R3).
    let tensor = unsafe { Tensor::from_raw(managed) }.expect("our own export is valid");
    expected.check_tensor(&tensor, Access::Shared, "there and back");
    assert_eq!(tensor.is_read_only(), read_only, "there and back: read-only");
    assert_eq!(tensor.into_raw(), managed, "there and back twice: the same descriptor");
    // SAFETY: as above.
    let tensor = unsafe { Tensor::from_raw(managed) }.expect("valid again");
    let legacy = match tensor.into_raw_legacy() {
        Ok(managed) => managed,
        Err(error) => {
            assert!(read_only, "there and back: writable memory was refused: {error}");
            return assert_eq!(error, Error::LegacyReadOnly, "there and back");
        }
    };
    // SAFETY: as above.
    let tensor = unsafe { Tensor::from_raw(legacy) }.expect("valid in either ABI");
    expected.check_tensor(&tensor, Access::Shared, "there and back, in both ABIs");
}

fn frozen<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    let tensor = tensor.into_frozen();
    let first = Tensor::from(tensor.clone());
    let second = Tensor::from(tensor.clone());
    let access = match expected.access {
        Access::Shared => Access::Shared,
        Access::Exclusive | Access::Frozen => Access::Frozen,
    };
    expected.check_tensor(&first, access, "shared");
    assert!(first.is_read_only(), "shared: read-only");
    drop(tensor);
    drop(first);
    expected.expect_releases(0, "shared: one share is left");
    expected.check_tensor(&second, access, "shared: the last");
}

fn made_shared<T: Element + PartialEq + Debug>(tensor: Tensor, expected: &Expected<T>) {
    let mut tensor = Tensor::from(tensor.into_shared());
    let access = match expected.access {
        Access::Exclusive => Access::Shared,
        access => access,
    };
    expected.check_tensor(&tensor, access, "made shared");
    assert!(tensor.view_mut::<T>().is_err(), "made shared: no safe writing");
}
