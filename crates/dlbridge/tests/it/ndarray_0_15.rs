//! `ndarray` 0.15: the tests of 0.17 with its types.

mod ndarray {
    pub(crate) use ::ndarray_0_15::*;

    // This version has no type that all arrays dereference to.

    pub(crate) fn by_ref<D: Dimension>(array: &Array<i32, D>) -> &Array<i32, D> {
        array
    }

    pub(crate) fn by_mut<D: Dimension>(array: &mut Array<i32, D>) -> &mut Array<i32, D> {
        array
    }
}

#[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
#[path = "ndarray_0_17.rs"]
mod arrays;
#[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
#[path = "ndarray_0_17_views.rs"]
mod views;
