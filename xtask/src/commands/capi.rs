//! `cargo xtask capi`: the C libraries, the header and the pkg-config file, as a C project wants
//! them.
//! Invariant: the folder holds what this build made, and nothing older.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::Args;
use crate::command;
use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;

/// The crate, and its libraries without the system's prefixes and endings.
const PACKAGE: &str = "dlbridge-capi";
const LIBRARY: &str = "dlbridge_capi";
const HEADER: &str = "crates/dlbridge-capi/include/dlbridge.h";
/// What the static library needs of the system.
const PRIVATE_LIBRARIES: &str = "-lgcc_s -lpthread -ldl -lm -lc";

/// Builds everything into `target/capi`, or the folder named after `--prefix`.
pub(crate) fn run(mut args: Args) -> Result {
    let prefixes = args.list("--prefix")?;
    args.finish()?;
    let prefix = match &prefixes[..] {
        [] => default_prefix()?,
        [prefix] => std::path::absolute(prefix)
            .map_err(|error| Failure::new(format!("{prefix}: {error}")))?,
        _ => return Err(Failure::usage("one --prefix is enough")),
    };
    install(&prefix)?;
    println!("{}: libraries, header and pkg-config file", prefix.display());
    Ok(())
}

/// Builds everything into `target/capi` and gives the shared library.
pub(crate) fn build() -> Result<PathBuf> {
    let prefix = default_prefix()?;
    install(&prefix)?;
    Ok(prefix.join("lib").join(shared_library()))
}

fn default_prefix() -> Result<PathBuf> {
    Ok(project::target_folder()?.join("capi"))
}

fn shared_library() -> String {
    format!("{}{LIBRARY}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

fn static_library() -> String {
    if cfg!(windows) { format!("{LIBRARY}.lib") } else { format!("lib{LIBRARY}.a") }
}

fn install(prefix: &Path) -> Result {
    command::run(command::program("cargo").args(["build", "--release", "--package", PACKAGE]))?;
    let built = project::target_folder()?.join("release");
    for library in [shared_library(), static_library()] {
        copy(&built.join(&library), &prefix.join("lib").join(library))?;
    }
    copy(&project::path(HEADER), &prefix.join("include/dlbridge.h"))?;
    let description = pkg_config(prefix, &manifest::version()?);
    project::write(&prefix.join("lib/pkgconfig/dlbridge.pc"), description)
}

/// Replaces rather than overwrites: a program may have the old library loaded.
fn copy(from: &Path, to: &Path) -> Result {
    let folder = to.parent().expect("a file lies in a folder");
    let _ = fs::remove_file(to);
    fs::create_dir_all(folder)
        .and_then(|()| fs::copy(from, to))
        .map(|_| ())
        .map_err(|error| Failure::new(format!("cannot copy {}: {error}", from.display())))
}

fn pkg_config(prefix: &Path, version: &str) -> String {
    format!(
        "prefix={}\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: dlbridge\n\
         Description: Checked tensors from and to DLPack, Python and Julia\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -l{LIBRARY}\n\
         Libs.private: {PRIVATE_LIBRARIES}\n",
        prefix.display()
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::pkg_config;

    #[test]
    fn folders_follow_the_prefix() {
        let text = pkg_config(Path::new("/opt/x"), "1.2.3");
        assert!(text.starts_with("prefix=/opt/x\nlibdir=${prefix}/lib\n"), "{text}");
        assert!(text.contains("\nVersion: 1.2.3\n"));
    }
}
