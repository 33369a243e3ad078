//! `cargo xtask capi`: the C libraries, the header and the pkg-config file, as a C project needs them.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use crate::shell::{shell, target};
use crate::workspace;

const PACKAGE: &str = "dlbridge-capi";
/// The libraries' name without the system's prefixes and suffixes.
const LIBRARY: &str = "dlbridge_capi";

/// Installs into `target/capi`, or the given folder.
pub(crate) fn run(prefix: Option<PathBuf>) -> Result<()> {
    let prefix = std::path::absolute(prefix.unwrap_or_else(|| target().join("capi")))?;
    install(&prefix)?;
    println!("{}: libraries, header and pkg-config file", prefix.display());
    Ok(())
}

/// Installs into `target/capi` and gives the shared library.
pub(crate) fn build() -> Result<PathBuf> {
    let prefix = target().join("capi");
    install(&prefix)?;
    Ok(prefix.join("lib").join(shared_library()))
}

fn shared_library() -> String {
    format!("{DLL_PREFIX}{LIBRARY}{DLL_SUFFIX}")
}

fn install(prefix: &Path) -> Result<()> {
    let sh = shell();
    cmd!(sh, "cargo build --release --package {PACKAGE}").run()?;
    let static_library =
        if cfg!(windows) { format!("{LIBRARY}.lib") } else { format!("lib{LIBRARY}.a") };
    let built = target().join("release");
    let header = "crates/dlbridge-capi/include/dlbridge.h";
    sh.create_dir(prefix.join("lib"))?;
    sh.create_dir(prefix.join("include"))?;
    for (from, to) in [
        (built.join(shared_library()), "lib"),
        (built.join(static_library), "lib"),
        (header.into(), "include"),
    ] {
        let to = prefix.join(to).join(from.file_name().context("a library has a name")?);
        // Replaces rather than overwrites: a program may have the old library loaded.
        sh.remove_path(&to)?;
        sh.copy_file(from, to)?;
    }
    let description = sh.read_file("crates/dlbridge-capi/dlbridge.pc.in")?;
    let description = description.replace("@VERSION@", workspace::main_crate()?.text("version"));
    let description = description.replace("@PREFIX@", &prefix.display().to_string());
    Ok(sh.write_file(prefix.join("lib/pkgconfig/dlbridge.pc"), description)?)
}
