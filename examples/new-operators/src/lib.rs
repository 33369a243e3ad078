//! The distances of points, as an operator of PyTorch and JAX and a universal function of NumPy.
#![forbid(unsafe_code)]

use dlbridge_operators::{AddOperator, operator};
use pyo3::prelude::*;

operator! {
    /// The squared distance of each point of `a` to each point of `b`.
    pub fn distances<T: f32 | f64>(a: View<T>, b: View<T>, out: ViewMut<T>) -> Result<(), dlbridge::Error>
    as "(n,d),(m,d)->(n,m)", backward = distances_backward {
        for (i, x) in a.rows().enumerate() {
            for (j, y) in b.rows().enumerate() {
                out.set([i, j], x.iter().zip(y.iter()).map(|(x, y)| (x - y) * (x - y)).sum())?;
            }
        }
        Ok(())
    }
}

operator! {
    /// The gradients of `distances`: 2 g (a - b) for each pair, with opposite signs.
    pub fn distances_backward<T: f32 | f64>(
        gradient: View<T>, a: View<T>, b: View<T>, of_a: ViewMut<T>, of_b: ViewMut<T>
    ) -> Result<(), dlbridge::Error> as "(n,m),(n,d),(m,d)->(n,d),(m,d)" {
        of_a.fill(0.0);
        of_b.fill(0.0);
        for (i, x) in a.rows().enumerate() {
            for (j, y) in b.rows().enumerate() {
                let factor = 2.0 * gradient.get([i, j]).unwrap_or_default();
                for (k, (x, y)) in x.iter().zip(y.iter()).enumerate() {
                    of_a.set([i, k], of_a.get([i, k]).unwrap_or_default() + factor * (x - y))?;
                    of_b.set([j, k], of_b.get([j, k]).unwrap_or_default() - factor * (x - y))?;
                }
            }
        }
        Ok(())
    }
}

#[pymodule(gil_used = false)]
pub fn my_extension(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_operator(distances)?;
    module.add_operator(distances_backward)
}
