//! `arrow` 60, both ways. Feature `arrow-60`.
//!
//! | from | to |
//! | --- | --- |
//! | `Buffer`, `ScalarBuffer` | [`Tensor`](crate::Tensor), read-only, by `From` |
//! | `PrimitiveArray`, `FixedSizeListArray`, `ArrayRef` | [`Tensor`](crate::Tensor), read-only, by `TryFrom` |
//! | `&PrimitiveArray` | [`TensorRef`](crate::TensorRef), by `TryFrom` |
//! | a column of the extension type `arrow.fixed_shape_tensor` | [`Tensor`](crate::Tensor), by [`from_fixed_shape_tensors`] |
//! | a tensor that no other code writes | `Buffer`, `ScalarBuffer`, `PrimitiveArray`, `ArrayRef`, by [`into_as`](crate::Tensor::into_as) |
//! | the same | a column of tensors, by [`into_fixed_shape_tensors`] |
//!
//! Nothing is copied. Arrays with nulls or with bit-packed values are rejected.
//!
//! ```
//! use arrow_array::{Array, Float64Array};
//! use dlbridge::Tensor;
//!
//! let tensor = Tensor::try_from(Float64Array::from(vec![1.0, 2.0]))?;
//! assert_eq!(tensor.as_slice::<f64>()?, [1.0, 2.0]);
//! assert_eq!(tensor.into_as::<Float64Array>()?.value(1), 2.0);
//!
//! let error = Tensor::try_from(Float64Array::from(vec![Some(1.0), None])).unwrap_err();
//! assert_eq!(error.to_string(), "values: expected an array without nulls, found 1 null");
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! A buffer becomes a tensor of bytes; the builder gives it another type and shape:
//!
//! ```
//! use arrow_buffer::Buffer;
//! use dlbridge::{DType, Tensor};
//!
//! let buffer = Buffer::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0]);
//! let start = buffer.as_ptr();
//! let matrix = Tensor::builder(buffer).dtype(DType::F32).shape(&[2, 2]).build_read_only::<u8>()?;
//! assert_eq!(matrix.as_slice::<f32>()?.as_ptr().cast(), start);
//!
//! let others = Tensor::from(Tensor::from(vec![1_u16, 2]).into_shared());
//! assert!(Buffer::try_from(others).is_err(), "Arrow relies on memory that no code writes");
//! # Ok::<(), dlbridge::Error>(())
//! ```
//!
//! A list of fixed size becomes an axis. In a column of tensors, the field says which:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Arc;
//!
//! use arrow_array::{Array, FixedSizeListArray, Int32Array};
//! use arrow_schema::{DataType, Field};
//! use dlbridge::{Tensor, arrow_60};
//!
//! let item = Arc::new(Field::new("item", DataType::Int32, false));
//! let values = Arc::new(Int32Array::from_iter_values(0..12));
//! let column = FixedSizeListArray::new(item, 6, values, None);
//! assert_eq!(Tensor::try_from(column.clone())?.shape(), [2, 6]);
//!
//! let extension = [
//!     ("ARROW:extension:name", "arrow.fixed_shape_tensor"),
//!     ("ARROW:extension:metadata", r#"{"shape": [2, 3], "permutation": [1, 0]}"#),
//! ];
//! let extension = extension.map(|(key, word)| (key.to_owned(), word.to_owned()));
//! let field = Field::new("x", column.data_type().clone(), false);
//! let field = field.with_metadata(HashMap::from(extension));
//! let tensor = arrow_60::from_fixed_shape_tensors(&field, column)?;
//! assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3, 2][..], &[6, 1, 3][..]));
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod arrow {
    pub(super) use ::{arrow_array as array, arrow_buffer as buffer, arrow_schema as schema};
}

#[allow(clippy::duplicate_mod, reason = "one text for every version of the crate")]
#[path = "arrow.rs"]
mod conversions;

pub use self::conversions::{from_fixed_shape_tensors, into_fixed_shape_tensors};
