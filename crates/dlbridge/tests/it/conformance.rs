//! The conformance suites find what they are there to find.
//! That good conversions pass them is shown all over the other tests.

use std::sync::Arc;

use crate::common::{import, other_ndim};
use dlbridge::{Access, Device, Flags, Tensor, TensorRef};
use dlbridge_testing::conformance::{self, Expected, Refusal};
use dlbridge_testing::{CountingOwner, Foreign, Releases};

const VALUES: [i32; 6] = [1, 2, 3, 4, 5, 6];

fn expected() -> Expected<i32> {
    Expected::new(&[2, 3], &VALUES)
}

fn tensor() -> Tensor {
    Tensor::builder(VALUES).shape([2, 3]).build::<i32>().expect("it fits")
}

#[test]
fn a_good_owner_passes() {
    conformance::owner(|| (tensor(), expected()));
}

#[test]
#[should_panic(expected = "made: shape")]
fn another_shape_is_found() {
    conformance::owner(|| (Tensor::from(VALUES), expected()));
}

#[test]
#[should_panic(expected = "made: dtype")]
fn another_dtype_is_found() {
    conformance::owner(|| (Tensor::from([1_u32; 6]), Expected::new(&[6], &[1_i32; 6])));
}

#[test]
#[should_panic(expected = "made: strides")]
fn other_strides_are_found() {
    conformance::owner(|| (tensor(), expected().strides(&[1, 2])));
}

#[test]
#[should_panic(expected = "made: elements in row-major order")]
fn other_elements_are_found() {
    conformance::owner(|| (tensor(), Expected::new(&[2, 3], &[0_i32; 6])));
}

#[test]
#[should_panic(expected = "not the same memory")]
fn a_copy_is_found() {
    conformance::owner(|| {
        let values = VALUES.to_vec();
        let copy = Tensor::from(values.clone());
        (copy, Expected::new(&[6], &VALUES).at(values.as_ptr()))
    });
}

#[test]
#[should_panic(expected = "made: access class")]
fn a_writable_export_of_an_immutable_owner_is_found() {
    conformance::owner(|| (tensor(), expected().read_only()));
}

#[test]
#[should_panic(expected = "made: access class")]
fn an_owner_that_others_may_write_is_found() {
    conformance::owner(|| (tensor().into_shared().into(), expected()));
}

#[test]
#[should_panic(expected = "made: released 0 times, wanted 1")]
fn an_owner_that_is_never_dropped_is_found() {
    conformance::owner(|| (tensor(), expected().releases(Releases::default())));
}

#[test]
#[should_panic(expected = "released 1 times, wanted 0")]
fn an_owner_that_is_dropped_at_once_is_found() {
    conformance::owner(|| {
        let owner = CountingOwner::new(VALUES);
        let drops = owner.drops();
        drop(owner);
        (tensor(), expected().releases(drops))
    });
}

#[test]
fn memory_that_others_may_write_may_be_read_only_or_not() {
    for flags in [Flags::NONE, Flags::READ_ONLY] {
        conformance::owner(|| {
            let foreign = Foreign::new(&[2, 3], &VALUES).flags(flags);
            let expected = expected().access(Access::Shared).releases(foreign.releases());
            (import(foreign).expect("legal"), expected)
        });
    }
}

#[test]
#[should_panic(expected = "has as many values")]
fn a_test_that_contradicts_itself_is_found() {
    let _ = Expected::new(&[2, 2], &VALUES);
}

#[test]
#[should_panic(expected = "is host memory")]
fn host_memory_without_values_is_found() {
    let _ = Expected::<i32>::on(Device::CPU, &[2]);
}

#[test]
#[should_panic(expected = "borrowed: access class")]
fn a_borrow_of_shared_memory_is_found() {
    conformance::borrowed(&tensor().into_shared().as_tensor_ref(), &expected());
}

#[test]
fn a_good_borrow_passes() {
    let values: Arc<[i32]> = Arc::from(VALUES);
    let expected = Expected::new(&[6], &VALUES).at(values.as_ptr());
    conformance::borrowed(&TensorRef::from(&values[..]), &expected);
}

#[test]
#[should_panic(expected = "elements in row-major order")]
fn a_reader_that_ignores_strides_is_found() {
    conformance::reader(|tensor| {
        let mut values = tensor.view::<i32>()?.to_vec();
        // as memory has them, whatever the axes say
        values.sort_unstable();
        Ok(values)
    });
}

#[test]
#[should_panic(expected = "another dtype: must be refused")]
fn a_reader_that_ignores_the_dtype_is_found() {
    conformance::reader::<i32, _>(|tensor| match tensor.view::<i32>() {
        Ok(view) => Ok(view.to_vec()),
        Err(_) => Ok(Vec::new()),
    });
}

#[test]
fn a_reader_says_what_it_refused() {
    let refused = conformance::reader(|tensor| match tensor.ndim() {
        2 => Ok(tensor.view::<u8>()?.to_vec()),
        found => Err(other_ndim(2, found)),
    });
    let error = other_ndim(2, 0);
    let named = |refusal: &&Refusal| refusal.tensor == "0-d";
    assert_eq!(refused.iter().find(named).map(|refusal| &refusal.error), Some(&error));
    assert!(refused.iter().all(|refusal| refusal.tensor != "contiguous"));
}
