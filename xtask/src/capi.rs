//! `cargo xtask capi`: the C libraries, the header, and the files for pkg-config and CMake, as a C
//! project needs them. The texts are in `crates/dlbridge-capi/packaging`; all installed files find
//! each other relative to their own place.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::cmd;

use crate::shell::{shell, target};
use crate::workspace;

const PACKAGE: &str = "dlbridge-capi";
/// The name of what cargo builds, without the system's prefixes and suffixes.
const BUILT: &str = "dlbridge_capi";
/// Has the number in the shared library's name.
const BUILD_SCRIPT: &str = "crates/dlbridge-capi/build.rs";
/// Texts to fill in, and where they are installed.
const TEXTS: [(&str, &str); 3] = [
    ("dlbridge.pc", "lib/pkgconfig"),
    ("dlbridge-config.cmake", "lib/cmake/dlbridge"),
    ("dlbridge-config-version.cmake", "lib/cmake/dlbridge"),
];

/// The linker's flags for the static library. A plugin with it stays loaded, because Python objects of the
/// library's class outlive every `dlclose`. It exports none of the library's symbols, which another plugin
/// would call in place of its own. Only ELF has the flags.
const LINK_FLAGS: &str = match cfg!(any(windows, target_os = "macos")) {
    true => "",
    false => "-Wl,-z,nodelete -Wl,--exclude-libs,libdlbridge.a",
};

/// Installs into `target/capi`, or the given folder.
pub(crate) fn run(prefix: Option<PathBuf>) -> Result<()> {
    let prefix = std::path::absolute(prefix.unwrap_or_else(|| target().join("capi")))?;
    install(&prefix)?;
    println!("{}: libraries, header, files for pkg-config and CMake", prefix.display());
    Ok(())
}

/// Installs into `target/capi` and returns the shared library.
pub(crate) fn build() -> Result<PathBuf> {
    let prefix = target().join("capi");
    install(&prefix)?;
    let [_, link, _] = names(abi()?);
    Ok(prefix.join("lib").join(link))
}

/// What the libraries are called when they are installed: the shared one, the name that leads compilers
/// to it, and the static one.
fn names(abi: u32) -> [String; 3] {
    if cfg!(windows) {
        // An import library names its DLL, which cannot be renamed any more.
        return ["dll", "dll", "lib"].map(|extension| format!("{BUILT}.{extension}"));
    }
    let number =
        if cfg!(target_os = "macos") { format!(".{abi}.dylib") } else { format!(".so.{abi}") };
    [&number, DLL_SUFFIX, ".a"].map(|end| format!("libdlbridge{end}"))
}

fn abi() -> Result<u32> {
    let script = shell().read_file(BUILD_SCRIPT)?;
    let number = script.split("const ABI: u32 = ").nth(1).and_then(|rest| rest.split(';').next());
    let number = number.and_then(|number| number.parse().ok());
    number.with_context(|| format!("{BUILD_SCRIPT}: expected `const ABI: u32 = N;`"))
}

fn install(prefix: &Path) -> Result<()> {
    let sh = shell();
    cmd!(sh, "cargo rustc --release --package {PACKAGE} --lib -- -Cstrip=symbols").run()?;
    let (built, [shared, link, fixed]) = (target().join("release"), names(abi()?));
    let archive = if cfg!(windows) { format!("{BUILT}.lib") } else { format!("lib{BUILT}.a") };
    sh.create_dir(prefix.join("lib"))?;
    sh.create_dir(prefix.join("include"))?;
    for (from, to) in [
        (built.join(format!("{DLL_PREFIX}{BUILT}{DLL_SUFFIX}")), format!("lib/{shared}")),
        (built.join(archive), format!("lib/{fixed}")),
        ("crates/dlbridge-capi/include/dlbridge.h".into(), "include/dlbridge.h".to_owned()),
        ("crates/dlbridge-capi/include/dlbridge.hpp".into(), "include/dlbridge.hpp".to_owned()),
    ] {
        // Replaces rather than overwrites: a program may have the old library loaded.
        sh.remove_path(prefix.join(&to))?;
        sh.copy_file(from, prefix.join(to))?;
    }
    #[cfg(unix)]
    {
        let link = prefix.join("lib").join(&link);
        sh.remove_path(&link)?;
        std::os::unix::fs::symlink(&shared, link)?;
    }
    let main_crate = workspace::main_crate()?;
    let libraries = system_libraries(&target())?;
    for (name, folder) in TEXTS {
        let text = sh.read_file(format!("crates/{PACKAGE}/packaging/{name}.in"))?;
        let text = text.replace("@VERSION@", main_crate.text("version"));
        let text = text.replace("@LIBRARIES@", &libraries).replace("@LINK_FLAGS@", LINK_FLAGS);
        let text = text.replace("@SHARED@", &shared).replace("@STATIC@", &fixed);
        sh.write_file(prefix.join(folder).join(name), text)?;
    }
    Ok(())
}

/// The libraries that a static Rust library needs of the system, as rustc has them.
fn system_libraries(folder: &Path) -> Result<String> {
    let (sh, source, list) = (shell(), folder.join("empty.rs"), folder.join("empty.txt"));
    sh.write_file(&source, "")?;
    let print = format!("--print=native-static-libs={}", list.display());
    cmd!(sh, "rustc --crate-type staticlib --out-dir {folder} {print} {source}").quiet().run()?;
    Ok(sh.read_file(list)?.trim().to_owned())
}
