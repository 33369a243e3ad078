//! Runs the Rust examples of the repository's pages as doctests of this crate, which is not published.
//! Invariant: every page with a Rust example is named here; `cargo xtask lint` checks it.

#[doc = include_str!("../../../README.md")]
mod readme {}

#[doc = include_str!("../../../docs/guide/README.md")]
mod start {}

#[doc = include_str!("../../../docs/guide/calls.md")]
mod calls {}

#[doc = include_str!("../../../docs/guide/parts.md")]
mod parts {}

#[doc = include_str!("../../../docs/guide/extension.md")]
mod extension {}

#[doc = include_str!("../../../docs/guide/class.md")]
mod class {}

#[doc = include_str!("../../../docs/guide/gpu.md")]
mod gpu {}

#[doc = include_str!("../../../docs/guide/soundness.md")]
mod soundness {}

#[doc = include_str!("../../../docs/errors.md")]
mod errors {}

#[doc = include_str!("../../../docs/guide/coming-from.md")]
mod coming_from {}

#[doc = include_str!("../../../docs/guide/operators.md")]
mod operators {}

#[cfg(target_os = "linux")]
#[doc = include_str!("../../../docs/guide/processes.md")]
mod processes {}

#[doc = include_str!("../../../docs/guide/weights.md")]
mod weights {}

#[doc = include_str!("../../../extras/operators/README.md")]
mod operators_readme {}

#[doc = include_str!("../../../crates/dlbridge-sys/README.md")]
mod sys_readme {}

#[doc = include_str!("../../../crates/dlbridge/README.md")]
mod dlbridge_readme {}

#[doc = include_str!("../../../extras/sealed/README.md")]
mod sealed_readme {}

#[doc = include_str!("../../../crates/dlbridge-testing/README.md")]
mod testing_readme {}

#[doc = include_str!("../../../crates/dlbridge-pyo3/README.md")]
mod pyo3_readme {}
