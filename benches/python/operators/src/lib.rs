//! The operators of `cargo xtask bench operators`, in Rust.
//! Invariant: they compute what the operators in C and C++ in this folder compute.

use dlbridge::Error;
use dlbridge_operators::{AddOperator, operator};
use pyo3::prelude::*;

operator! {
    /// Scales a vector.
    fn scale(x: View<f32>, factor: f64, out: ViewMut<f32>) -> Result<(), Error> as "(n)->(n)" {
        out.zip_inplace(&x, |_, x| x * factor as f32)
    }
}

operator! {
    /// The same, with a gradient.
    fn scale_with_gradient(x: View<f32>, factor: f64, out: ViewMut<f32>) -> Result<(), Error>
    as "(n)->(n)", backward = scale_backward {
        out.zip_inplace(&x, |_, x| x * factor as f32)
    }
}

operator! {
    /// The gradient of `scale_with_gradient`.
    fn scale_backward(gradient: View<f32>, _x: View<f32>, factor: f64, out: ViewMut<f32>) -> Result<(), Error>
    as "(n),(n)->(n)" {
        out.zip_inplace(&gradient, |_, x| x * factor as f32)
    }
}

operator! {
    /// Scales each element.
    fn scale_each(x: View<f32>, factor: f64, out: ViewMut<f32>) -> Result<(), Error> as "(...)->(...)" {
        out.zip_inplace(&x, |_, x| x * factor as f32)
    }
}

#[pymodule]
fn bench_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_operator(scale)?;
    module.add_operator(scale_with_gradient)?;
    module.add_operator(scale_backward)?;
    module.add_operator(scale_each)
}
