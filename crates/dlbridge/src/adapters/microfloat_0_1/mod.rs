//! `microfloat` 0.1: its 8-bit floats as elements, one for each kind that DLPack names. Feature
//! `microfloat-0_1`. Its 4-bit and 6-bit types take a byte each, and DLPack packs them, so they are no
//! elements.
//!
//! ```
//! use dlbridge::{DType, Tensor};
//! use microfloat::f8e4m3;
//!
//! let tensor = Tensor::from(vec![f8e4m3::from_bits(0x3c)]);
//! assert_eq!(tensor.dtype(), DType::FLOAT8_E4M3);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod raw;
