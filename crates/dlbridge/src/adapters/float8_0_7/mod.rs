//! `float8` 0.7: its two 8-bit floats as elements. Feature `float8-0_7`.
//!
//! ```
//! use dlbridge::{DType, Tensor};
//! use float8::F8E5M2;
//!
//! let tensor = Tensor::from(vec![F8E5M2::from_f32(1.5)]);
//! assert_eq!(tensor.dtype(), DType::FLOAT8_E5M2);
//! assert_eq!(tensor.as_slice::<F8E5M2>()?[0].to_f32(), 1.5);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod raw;
