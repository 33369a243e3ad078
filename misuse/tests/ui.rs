//! What must not compile: each file in `ui/` is one misuse, beside it what the compiler says.
//! Misuse that only shows at run time is in `aliasing.rs` and `access.rs` of dlbridge.
//!
//! What the compiler says changes from version to version, so this runs with the pinned one only.
//! After a change: `TRYBUILD=overwrite cargo +1.95 test -p dlbridge-misuse`.

use std::env;
use std::process::Command;

/// The compiler whose messages the `.stderr` files hold.
const PINNED: &str = "rustc 1.95.";

#[test]
fn misuse_does_not_compile() {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("a compiler");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    if !version.starts_with(PINNED) {
        println!("skipped: the messages are those of {PINNED}x, this is {}", version.trim());
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
