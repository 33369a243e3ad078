//! Tells the sources which Python's API PyO3 is compiled for, and rejects a Python that is too old.
//!
//! `pyo3-ffi` publishes its configuration to the build scripts of dependents: lines of text, as hexadecimal
//! digits. The crate `pyo3-build-config` reads them, but a dependency on a range of its versions resolves
//! to the newest, which reads that of no older PyO3.

use std::env;

/// Before 3.11, the limited API lacks the buffer protocol.
const OLDEST: u32 = 11;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(type_hints)");
    let Some(configuration) = env::var("DEP_PYTHON_PYO3_CONFIG").ok().and_then(|hex| text(&hex))
    else {
        return;
    };
    let value = |name: &str| configuration.lines().find_map(|line| line.strip_prefix(name));
    // Such as "CPython-abi3-3.11"; PyO3 0.28 and older write two lines, "abi3=true" and "version=3.11".
    let target = value("target_abi=");
    let version = target.and_then(|abi| abi.rsplit('-').next()).or(value("version="));
    let minor = version.and_then(|version| version.strip_prefix("3.")?.parse().ok());
    if let Some(minor @ ..OLDEST) = minor {
        println!(
            "cargo::error=dlbridge-pyo3 needs Python 3.{OLDEST} or newer, and PyO3 builds for Python 3.{minor}: \
             use its feature abi3-py3{OLDEST} in place of abi3-py3{minor}, or name a newer Python in PYO3_PYTHON"
        );
    }
    // PyO3 before 0.29 has other types for this.
    if target.is_some() && env::var_os("CARGO_FEATURE_EXPERIMENTAL_INSPECT").is_some() {
        println!("cargo::rustc-cfg=type_hints");
    }
}

/// The text of hexadecimal digits.
fn text(hex: &str) -> Option<String> {
    let digits = hex.as_bytes().chunks_exact(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect::<Option<_>>()?;
    String::from_utf8(bytes).ok()
}
