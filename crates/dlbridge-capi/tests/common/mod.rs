//! Building and running programs of C and C++ against what cargo has built.
//! What they check stands in `programs/`.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Complains about everything that a strict project would.
const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-pthread"];
/// The libraries that the static library needs.
pub(crate) const SYSTEM: [&str; 5] = ["-lgcc_s", "-lpthread", "-ldl", "-lm", "-lc"];

/// The folder that cargo put the libraries into, which is this program's or the one above.
pub(crate) fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let mut folders = program.ancestors().skip(1).take(2);
    let found = folders.find(|folder| folder.join("libdlbridge_capi.a").is_file());
    found.expect("cargo has built the libraries").to_owned()
}

pub(crate) fn static_library() -> Vec<String> {
    let library = libraries().join("libdlbridge_capi.a").display().to_string();
    // Cargo built it with every adapter: a program of the whole archive has over 100 MB.
    let unused = cfg!(target_os = "linux").then(|| "-Wl,--gc-sections".to_owned());
    unused.into_iter().chain([library]).chain(SYSTEM.map(str::to_owned)).collect()
}

/// Links in milliseconds, where the static library takes seconds.
pub(crate) fn shared_library() -> Vec<String> {
    let folder = installed().display();
    let ours = [format!("-L{folder}"), format!("-Wl,-rpath,{folder}"), "-ldlbridge".to_owned()];
    ours.into_iter().chain(SYSTEM.map(str::to_owned)).collect()
}

/// A folder with the shared library under the names that it is installed with.
pub(crate) fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        std::fs::create_dir_all(&folder).unwrap();
        let built = libraries().join(format!("libdlbridge_capi{}", std::env::consts::DLL_SUFFIX));
        // As it is installed, optimised: valgrind sees other jumps there.
        let built = std::env::var_os("DLBRIDGE_CAPI_LIBRARY").map_or(built, PathBuf::from);
        let names = match cfg!(target_os = "macos") {
            true => ["libdlbridge.dylib", "libdlbridge.2.dylib"],
            false => ["libdlbridge.so", "libdlbridge.so.2"],
        };
        for name in names {
            let _ = std::fs::remove_file(folder.join(name));
            std::os::unix::fs::symlink(&built, folder.join(name)).unwrap();
        }
        folder
    })
}

/// Whether the long tests run: `cargo xtask test --long`.
pub(crate) fn is_long() -> bool {
    std::env::var_os("DLBRIDGE_LONG").is_some()
}

/// How many random calls a program makes, directly and under valgrind.
pub(crate) fn random_calls() -> [&'static str; 2] {
    if is_long() { ["300000", "20000"] } else { ["20000", "2000"] }
}

pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

pub(crate) fn compile(
    compiler: &str,
    standard: &str,
    source: &Path,
    name: &str,
    link: &[String],
) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new(compiler);
    command
        .args([standard, "-g", "-I"])
        .arg(folder.join("include"))
        .args(WARNINGS)
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(link);
    let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

pub(crate) fn succeed(command: &mut Command) -> String {
    // Cargo's search path may lead to a library of another build.
    let output = command.env_remove("LD_LIBRARY_PATH").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    said.into_owned()
}

/// Whether the C compiler makes programs with these options.
pub(crate) fn links(options: &[String]) -> bool {
    let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("empty-{thread}"));
    let source = program.with_extension("c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let output = Command::new("cc").arg(&source).arg("-o").arg(&program).args(options).output();
    output.is_ok_and(|output| output.status.success())
}

/// A folder like the one that `cargo xtask capi` installs into, with one of its texts.
pub(crate) fn prefix(name: &str, text: &str, place: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::create_dir_all(prefix.join(place)).unwrap();
    let filled =
        std::fs::read_to_string(crate_folder.join(format!("packaging/{text}.in"))).unwrap();
    let filled = filled
        .replace("@VERSION@", "1.2.3")
        .replace("@LIBRARIES@", &SYSTEM.join(" "))
        .replace("@LINK_FLAGS@", "-Wl,-z,nodelete -Wl,--exclude-libs,libdlbridge.a")
        .replace("@SHARED@", "libdlbridge.so")
        .replace("@STATIC@", "libdlbridge.a");
    assert!(!filled.contains('@'), "{filled}");
    std::fs::write(prefix.join(place).join(text), filled).unwrap();
    let link = |from: &Path, to: &str| {
        let _ = std::fs::remove_file(prefix.join(to));
        std::os::unix::fs::symlink(from, prefix.join(to)).unwrap();
    };
    link(&crate_folder.join("include"), "include");
    link(&libraries().join("libdlbridge_capi.a"), "lib/libdlbridge.a");
    for entry in std::fs::read_dir(installed()).unwrap() {
        let entry = entry.unwrap();
        link(&entry.path(), &format!("lib/{}", entry.file_name().to_string_lossy()));
    }
    prefix
}
