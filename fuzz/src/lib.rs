//! Fuzz targets: each compares the library's result for some input bytes with a simple model.
//!
//! A target is a function that panics if the two differ. libFuzzer drives it in an instrumented
//! build (`cfg(fuzzing)`), `driver` in any other; `tests/corpus.rs` replays the stored inputs.
#![allow(unsafe_code, reason = "creates a producer's descriptors by hand")]

pub mod adapters;
mod axes;
pub mod borrowed;
pub mod builder;
#[cfg(target_os = "linux")]
pub mod channel;
pub mod driver;
mod elements;
#[cfg(target_os = "linux")]
mod ends;
mod facts;
pub mod gate;
mod given;
mod input;
pub mod layout;
mod model;
mod release;
pub mod rights;
#[cfg(target_os = "linux")]
pub mod sealed;
mod shown;
mod value;
pub mod view;

/// A target: its name and its function.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of the target and of its input files.
    pub name: &'static str,
    /// Panics if the library and the model differ.
    pub run: fn(&[u8]),
}

/// Sealed files, and descriptors that a socket carries, are of Linux.
#[cfg(not(target_os = "linux"))]
mod sealed {
    pub(crate) fn run(_data: &[u8]) {}
}
#[cfg(not(target_os = "linux"))]
use sealed as channel;

/// Every target.
pub const TARGETS: [Target; 9] = [
    Target { name: "gate", run: gate::run },
    Target { name: "layout", run: layout::run },
    Target { name: "view", run: view::run },
    Target { name: "builder", run: builder::run },
    Target { name: "adapters", run: adapters::run },
    Target { name: "borrowed", run: borrowed::run },
    Target { name: "rights", run: rights::run },
    Target { name: "sealed", run: sealed::run },
    Target { name: "channel", run: channel::run },
];

/// The target with a name, if there is one.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}
