//! `arrow` 58, both ways. Feature `arrow-58`. The conversions are those of
#![cfg_attr(feature = "arrow-60", doc = "[`arrow_60`](super::arrow_60).")]
#![cfg_attr(not(feature = "arrow-60"), doc = "`arrow_60`.")]
//!
//! ```
//! use arrow_array_58::Float64Array;
//! use dlbridge::Tensor;
//!
//! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
//! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
//! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod arrow {
    pub(super) use ::{
        arrow_array_58 as array, arrow_buffer_58 as buffer, arrow_schema_58 as schema,
    };
}

#[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
#[path = "../arrow/mod.rs"]
mod conversions;

pub use self::conversions::lists::{from_fixed_shape_tensors, into_fixed_shape_tensors};
