//! `float4` 0.2: pairs of 4-bit floats, and the power-of-two scales beside them, as elements. Feature
//! `float4-0_2`. Its single `F4E2M1` takes a byte, and DLPack packs two into one, so it is no element.
//!
//! ```
//! use dlbridge::{DType, Tensor};
//! use float4::F4E2M1x2;
//!
//! let tensor = Tensor::from(vec![F4E2M1x2::from_bits(0x21)]);
//! assert_eq!(tensor.dtype(), DType::FLOAT4_E2M1FN.with_lanes(2));
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod raw;
