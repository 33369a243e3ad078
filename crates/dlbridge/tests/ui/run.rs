//! Programs that must not compile: each file of a package's folder, or each module of it, is one misuse, with the
//! messages of the compiler.
//! `dlbridge-ui` and `dlbridge-pyo3-ui` run it, each over its own folder. Misuse that only shows at run time is in
//! `it/aliasing.rs`, `it/access.rs` and `borrows_misuse.rs`.
//!
//! The messages change from version to version, so this runs with the pinned compiler only.
//! After a change: `TRYBUILD=overwrite cargo +1.95 test -p dlbridge-ui -p dlbridge-pyo3-ui`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

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
    let cases = trybuild::TestCases::new();
    for file in fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap() {
        let name = PathBuf::from(file.unwrap().file_name());
        if name.extension().is_some_and(|it| it == "rs") && name != Path::new("run.rs") {
            cases.compile_fail(name);
        }
    }
}
