//! The paths and calls of the benchmark through rust-numpy, which knows NumPy's arrays and no others.

mod calls;
#[cfg(feature = "paths")]
mod paths;

use pyo3::prelude::*;

#[pymodule]
fn bench_rust_numpy(module: &Bound<'_, PyModule>) -> PyResult<()> {
    #[cfg(feature = "paths")]
    paths::add(module)?;
    calls::add(module)
}
