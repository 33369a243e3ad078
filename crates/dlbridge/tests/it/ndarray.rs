//! `ndarray` 0.17 for the tests that each of its versions runs, with the array type that it adds.

pub(crate) use ::ndarray::*;

/// An array as the type that all arrays and views dereference to.
pub(crate) fn by_ref<D: Dimension>(array: &Array<i32, D>) -> &ArrayRef<i32, D> {
    array
}

/// The same, mutably.
pub(crate) fn by_mut<D: Dimension>(array: &mut Array<i32, D>) -> &mut ArrayRef<i32, D> {
    array
}
