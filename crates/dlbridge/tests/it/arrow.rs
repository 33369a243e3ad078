//! `arrow` 60 for the tests that each of its versions runs.

pub(crate) use ::{arrow_array as array, arrow_buffer as buffer, arrow_schema as schema};
pub(crate) use dlbridge::arrow_60 as adapter;
