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
#[allow(clippy::duplicate_mod, reason = "one suite for every version of the crate")]
#[path = "arrow_60_lists.rs"]
mod lists;
