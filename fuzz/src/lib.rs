//! Fuzz targets: bytes go in, and what the library makes of them is compared with a plain model.
//!
//! A target is a function that panics when the two differ. libFuzzer drives it where a build is
//! instrumented (`cfg(fuzzing)`), `driver` where it is not; `tests/corpus.rs` replays what was kept.
#![allow(unsafe_code, reason = "a producer's descriptors are given by hand")]

pub mod adapters;
mod axes;
pub mod borrowed;
pub mod builder;
pub mod driver;
mod elements;
mod facts;
pub mod gate;
mod given;
mod input;
pub mod layout;
mod model;
mod release;
#[cfg(target_os = "linux")]
pub mod sealed;
mod shown;
mod value;
pub mod view;

/// What libFuzzer is compiled against.
#[cfg(fuzzing)]
pub use libfuzzer_sys;

/// A name and what it runs.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its program, and of its folders of inputs.
    pub name: &'static str,
    /// Panics where the library and the model differ.
    pub run: fn(&[u8]),
}

/// Sealed files are files of Linux.
#[cfg(not(target_os = "linux"))]
mod sealed {
    pub(crate) fn run(_data: &[u8]) {}
}

/// Every target.
pub const TARGETS: [Target; 7] = [
    Target { name: "gate", run: gate::run },
    Target { name: "layout", run: layout::run },
    Target { name: "view", run: view::run },
    Target { name: "builder", run: builder::run },
    Target { name: "adapters", run: adapters::run },
    Target { name: "borrowed", run: borrowed::run },
    Target { name: "sealed", run: sealed::run },
];

/// The target of a name.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn target(name: &str) -> Target {
    *TARGETS.iter().find(|target| target.name == name).expect("a name of a target")
}

/// The `main` of a target's program.
#[macro_export]
macro_rules! program {
    ($name:literal) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|data: &[u8]| ($crate::target($name).run)(data));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::driver::main($crate::target($name))
        }
    };
}
