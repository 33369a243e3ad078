//! Tells the sources which Python's API they are compiled for.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
