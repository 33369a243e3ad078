//! The tests of the crate, in one program. Those that need a process of their own are beside it.

mod common;

mod access;
mod aliasing;
mod arc_tensor;
#[cfg(feature = "arrow-60")]
mod arrow {
    //! `arrow` 60 for the tests that each of its versions runs.

    pub(crate) use ::{arrow_array as array, arrow_buffer as buffer, arrow_schema as schema};
    pub(crate) use dlbridge::arrow_60 as adapter;
}
#[cfg(feature = "arrow-58")]
#[path = "."]
mod arrow_58 {
    //! `arrow` 58: the tests of 60 with its types.

    mod arrow {
        pub(crate) use ::{
            arrow_array_58 as array, arrow_buffer_58 as buffer, arrow_schema_58 as schema,
        };
        pub(crate) use dlbridge::arrow_58 as adapter;
    }

    #[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
    #[path = "arrow_60.rs"]
    mod arrays;
}
#[cfg(feature = "arrow-59")]
#[path = "."]
mod arrow_59 {
    //! `arrow` 59: the tests of 60 with its types.

    mod arrow {
        pub(crate) use ::{
            arrow_array_59 as array, arrow_buffer_59 as buffer, arrow_schema_59 as schema,
        };
        pub(crate) use dlbridge::arrow_59 as adapter;
    }

    #[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
    #[path = "arrow_60.rs"]
    mod arrays;
}
#[cfg(feature = "arrow-60")]
mod arrow_60;
mod borrowed;
mod builder;
#[cfg(feature = "burn-0_22")]
mod burn_0_22;
#[cfg(feature = "bytes-1")]
mod bytes_1;
#[cfg(feature = "candle-core-0_11")]
mod candle_core_0_11;
mod conformance;
mod copies;
mod elements;
#[cfg(feature = "faer-0_24")]
mod faer_0_24;
#[cfg(target_pointer_width = "64")]
mod huge_layouts;
#[cfg(feature = "image-0_25")]
mod image_0_25;
mod machines;
#[cfg(feature = "nalgebra-0_35")]
mod nalgebra_0_35;
mod names;
#[cfg(feature = "ndarray-0_17")]
mod ndarray {
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
}
#[cfg(feature = "ndarray-0_15")]
#[path = "."]
mod ndarray_0_15 {
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
}
#[cfg(feature = "ndarray-0_16")]
mod ndarray_0_16;
#[cfg(feature = "ndarray-0_17")]
mod ndarray_0_17;
mod owned_slice;
mod ownership;
mod packed;
#[cfg(feature = "rayon")]
mod parallel;
mod parts;
mod protocol;
mod releases;
mod rows;
mod shapes;
#[cfg(all(feature = "float8-0_7", feature = "microfloat-0_1", feature = "float4-0_2"))]
mod small_floats;
mod strides;
mod validation;
mod versions;
