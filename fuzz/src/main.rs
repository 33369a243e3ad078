//! The program of every target: libFuzzer's in an instrumented build (`cfg(fuzzing)`), `driver` in any
//! other.
#![cfg_attr(fuzzing, no_main)]

/// libFuzzer reads the command line, so that a variable of the environment names the target.
#[cfg(fuzzing)]
static TARGET: std::sync::LazyLock<dlbridge_fuzz::Target> = std::sync::LazyLock::new(|| {
    let name = std::env::var("DLBRIDGE_FUZZ_TARGET").unwrap_or_default();
    dlbridge_fuzz::target(&name).expect("DLBRIDGE_FUZZ_TARGET names a target")
});

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    dlbridge_fuzz::driver::main()
}
