//! `num-complex` 0.4: complex numbers as elements. Feature `num-complex-0_4`.
//!
//! ```
//! use dlbridge::Tensor;
//! use num_complex::Complex;
//!
//! let tensor = Tensor::from(vec![Complex::new(3.0_f32, 4.0)]);
//! assert_eq!(tensor.as_slice::<Complex<f32>>()?[0].norm(), 5.0);
//! # Ok::<(), dlbridge::Error>(())
//! ```

mod raw;
