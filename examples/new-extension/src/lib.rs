//! Functions over any framework's arrays.
#![forbid(unsafe_code)]

/// Functions over any framework's arrays.
#[pyo3::pymodule(gil_used = false)]
mod my_extension {
    use dlbridge_pyo3::{ANY_NDIM, CallerArray, NoGrad, PyTensorOf, Result};
    use pyo3::prelude::*;

    /// The length of a vector. Anything but a float32 vector in host memory raises `TypeError`.
    #[pyfunction]
    fn norm(x: PyTensorOf<f32, 1>) -> f32 {
        let sums: [f32; 16] = x.view().fold_lanes(0.0, |sum, value| sum + value * value);
        sums.iter().sum::<f32>().sqrt()
    }

    /// A new array of the type of `x`: `factor` times its values, without a gradient.
    #[pyfunction]
    fn scale<'py>(
        x: CallerArray<'py, f32, ANY_NDIM, NoGrad>,
        factor: f32,
    ) -> Result<Bound<'py, PyAny>> {
        x.to_caller(x.view().map_to_tensor(|value| factor * value)?)
    }
}
