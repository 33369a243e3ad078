//! `cargo xtask capi`: the C libraries, the header, and the files for pkg-config and CMake, as a C
//! project needs them.
//! Their texts belong to `crates/dlbridge-capi/packaging`.
//! Invariant: whatever is installed finds the rest relative to its own place.

use std::fs;
use std::path::{Path, PathBuf};

use crate::args::Args;
use crate::command;
use crate::failure::{Failure, Result};
use crate::manifest;
use crate::project;

/// The crate, and its libraries without the system's prefixes and endings.
const PACKAGE: &str = "dlbridge-capi";
const BUILT: &str = "dlbridge_capi";
const HEADER: &str = "crates/dlbridge-capi/include/dlbridge.h";
/// The number in the shared library's name stands here.
const BUILD_SCRIPT: &str = "crates/dlbridge-capi/build.rs";
/// Texts to fill in, and where they are installed.
const TEXTS: [(&str, &str); 3] = [
    ("dlbridge.pc", "lib/pkgconfig"),
    ("dlbridge-config.cmake", "lib/cmake/dlbridge"),
    ("dlbridge-config-version.cmake", "lib/cmake/dlbridge"),
];

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
    println!("{}: libraries, header, files for pkg-config and CMake", prefix.display());
    Ok(())
}

/// Builds everything into `target/capi` and gives the shared library.
pub(crate) fn build() -> Result<PathBuf> {
    let prefix = default_prefix()?;
    install(&prefix)?;
    Ok(prefix.join("lib").join(Names::of(abi()?).link))
}

fn default_prefix() -> Result<PathBuf> {
    Ok(project::target_folder()?.join("capi"))
}

/// What the libraries are called when they are installed.
struct Names {
    shared: String,
    /// What leads to the shared library, for compilers.
    link: String,
    archive: String,
}

impl Names {
    fn of(abi: u32) -> Self {
        let (shared, link, archive) = if cfg!(windows) {
            // An import library names its DLL, which cannot be renamed any more.
            (format!("{BUILT}.dll"), format!("{BUILT}.dll"), format!("{BUILT}.lib"))
        } else if cfg!(target_os = "macos") {
            let shared = format!("libdlbridge.{abi}.dylib");
            (shared, "libdlbridge.dylib".to_owned(), "libdlbridge.a".to_owned())
        } else {
            let shared = format!("libdlbridge.so.{abi}");
            (shared, "libdlbridge.so".to_owned(), "libdlbridge.a".to_owned())
        };
        Self { shared, link, archive }
    }
}

fn abi() -> Result<u32> {
    let script = project::read(&project::path(BUILD_SCRIPT))?;
    let number = script.split("const ABI: u32 = ").nth(1).and_then(|rest| rest.split(';').next());
    number
        .and_then(|number| number.parse().ok())
        .ok_or_else(|| Failure::new(format!("{BUILD_SCRIPT}: expected `const ABI: u32 = N;`")))
}

fn install(prefix: &Path) -> Result {
    let mut cargo = command::program("cargo");
    cargo.args(["rustc", "--release", "--package", PACKAGE, "--lib", "--", "-Cstrip=symbols"]);
    command::run(&mut cargo)?;
    let target = project::target_folder()?;
    let built =
        |prefix: &str, suffix: &str| target.join(format!("release/{prefix}{BUILT}{suffix}"));
    let names = Names::of(abi()?);
    let library = |name: &str| prefix.join("lib").join(name);
    let (start, end) = (std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    copy(&built(start, end), &library(&names.shared))?;
    let archive = if cfg!(windows) { built("", ".lib") } else { built("lib", ".a") };
    copy(&archive, &library(&names.archive))?;
    #[cfg(unix)]
    link(&names.shared, &library(&names.link))?;
    copy(&project::path(HEADER), &prefix.join("include/dlbridge.h"))?;
    let (version, libraries) = (manifest::version()?, system_libraries(&target)?);
    for (name, folder) in TEXTS {
        let text = format!("crates/{PACKAGE}/packaging/{name}.in");
        let text = fill(&project::read(&project::path(&text))?, &names, &version, &libraries);
        project::write(&prefix.join(folder).join(name), text)?;
    }
    Ok(())
}

/// The libraries that a static Rust library needs of the system, as rustc has them.
fn system_libraries(target: &Path) -> Result<String> {
    let (source, list) = (target.join("empty.rs"), target.join("empty.txt"));
    project::write(&source, "")?;
    let mut rustc = command::program("rustc");
    rustc.args(["--crate-type", "staticlib", "--out-dir"]).arg(target);
    rustc.arg(format!("--print=native-static-libs={}", list.display())).arg(&source);
    if !command::succeeds(&mut rustc) {
        return Err(Failure::new("rustc does not name the libraries of the system"));
    }
    Ok(project::read(&list)?.trim().to_owned())
}

fn fill(text: &str, names: &Names, version: &str, libraries: &str) -> String {
    text.replace("@VERSION@", version)
        .replace("@LIBRARIES@", libraries)
        .replace("@SHARED@", &names.shared)
        .replace("@STATIC@", &names.archive)
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

#[cfg(unix)]
fn link(name: &str, at: &Path) -> Result {
    let _ = fs::remove_file(at);
    std::os::unix::fs::symlink(name, at)
        .map_err(|error| Failure::new(format!("cannot link {}: {error}", at.display())))
}

#[cfg(test)]
mod tests {
    use super::{Names, abi, fill};

    #[test]
    fn texts_are_filled_in() {
        let names = Names::of(2);
        assert_eq!(fill("@VERSION@ @LIBRARIES@", &names, "1.2.3", "-lm"), "1.2.3 -lm");
        assert!(!fill("@SHARED@ @STATIC@", &names, "", "").contains('@'));
    }

    #[test]
    fn number_of_the_shared_library_is_read() {
        assert!(abi().is_ok_and(|abi| abi >= 2));
    }
}
