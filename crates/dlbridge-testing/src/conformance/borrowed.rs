//! The suite for conversions from a borrow to a [`TensorRef`].
#![allow(unsafe_code, reason = "it does by hand what a C function does")]

use std::fmt::Debug;

use dlbridge::{Access, Element, TensorRef};

use super::Expected;

/// Checks a tensor that was made from a borrow: it is the borrowed memory, read-only, and a C
/// function gets a descriptor that says the same.
///
/// ```
/// use dlbridge::TensorRef;
/// use dlbridge_testing::conformance::{self, Expected};
///
/// let values = [1.0_f32, 2.0];
/// let expected = Expected::new(&[2], &values).at(values.as_ptr());
/// conformance::borrowed(&TensorRef::from(&values[..]), &expected);
/// ```
///
/// # Panics
///
/// If it does not conform, saying where.
#[track_caller]
pub fn borrowed<T: Element + PartialEq + Debug>(tensor: &TensorRef<'_>, expected: &Expected<T>) {
    assert_eq!(tensor.access(), Access::Frozen, "borrowed: access class");
    expected.check(tensor, "borrowed");
    tensor.with_raw(|descriptor| {
        // SAFETY: alive until this closure ends (R2).
        let again = unsafe { TensorRef::from_raw(descriptor) }.expect("a valid descriptor");
        expected.check(&again, "borrowed, as a C function sees it");
    });
}
