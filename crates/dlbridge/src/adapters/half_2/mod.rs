//! `half` 2: `f16` and `bf16` as elements. Feature `half-2`.
//!
//! ```
//! use dlbridge::Tensor;
//! use half::bf16;
//!
//! let tensor = Tensor::from(vec![bf16::from_f32(1.5)]);
//! assert_eq!(tensor.as_slice::<bf16>()?[0].to_f32(), 1.5);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod raw;
