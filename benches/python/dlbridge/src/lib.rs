//! What dlbridge does for the paths and calls of `cargo xtask bench`.
//! What is measured, and how often, does not belong here.

mod calls;
#[cfg(feature = "paths")]
mod paths;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
fn bench_dlbridge(module: &Bound<'_, PyModule>) -> PyResult<()> {
    #[cfg(feature = "paths")]
    paths::add(module)?;
    calls::add(module)?;
    dlbridge_pyo3::defer_reference_counts(module)
}
