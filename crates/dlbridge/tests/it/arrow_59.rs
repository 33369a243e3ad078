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
#[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
#[path = "arrow_60_lists.rs"]
mod lists;
