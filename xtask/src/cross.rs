//! `cargo xtask test cross`: the core's tests on other machines, which QEMU and Wine emulate.

use std::path::Path;

use anyhow::Result;
use xshell::cmd;

use crate::shell::{answer, shell, succeeds, target as folder};
use crate::steps::{Steps, skip};
use crate::tally::Tally;
use crate::workspace;

/// Tests of calls that QEMU answers by itself: of seals of a file on disk, of advice to remove pages, of
/// `/proc/self/mem`.
const NOT_EMULATED: [&str; 3] = [
    "any_other_file_than_a_memory_file_is_refused",
    "no_mapping_of_a_sealed_file_is_shared_and_writable",
    "a_frozen_tensor_is_not_written_through_proc",
];

/// Another machine: its name for Debian (none for Windows), Rust, GCC and the program that emulates it.
type Machine = [&'static str; 4];

/// Another system, another architecture, pointers of 32 bits, big-endian.
const MACHINES: [Machine; 4] = [
    ["", "Windows", "x86_64-w64-mingw32", "wine"],
    ["arm64", "aarch64", "aarch64-linux-gnu", "qemu-aarch64"],
    ["i386", "i686", "i686-linux-gnu", "qemu-i386"],
    ["s390x", "s390x", "s390x-linux-gnu", "qemu-s390x"],
];
/// What Rust's standard library needs of Windows, and Wine has from version 9 on.
const RANDOM: &str = "#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE bytes, SIZE_T size) { return SystemFunction036(bytes, size); }
";

/// Runs the tests on every machine.
pub(crate) fn run(args: &[String], steps: &mut Steps) {
    for machine in &MACHINES {
        steps.count(&format!("core on {}", machine[1]), |tally| test(machine, args, tally));
    }
}

fn test(machine: &Machine, args: &[String], tally: &mut Tally) -> Result<()> {
    let [debian, rust, gcc, runner] = *machine;
    let (sh, linker, is_windows) = (shell(), format!("{gcc}-gcc"), debian.is_empty());
    let (target, runner, packages) = if is_windows {
        ("x86_64-pc-windows-gnu".to_owned(), runner.to_string(), "mingw-w64-x86-64 wine")
    } else {
        let packages = "aarch64-linux-gnu gcc-i686-linux-gnu gcc-s390x-linux-gnu qemu-user-static";
        (format!("{rust}-unknown-linux-gnu"), format!("{runner}-static"), packages)
    };
    if !succeeds(cmd!(sh, "{linker} --version")) || !succeeds(cmd!(sh, "{runner} --version")) {
        return skip(format!("apt-get install gcc-{packages}"));
    }
    let members = workspace::members()?;
    let version = members.first().map_or("", |member| member.text("rust_version"));
    // Debian has no standard library for Windows.
    let libraries = answer(cmd!(sh, "rustc --print target-libdir --target {target}"));
    if is_windows && !libraries.is_some_and(|folder| Path::new(&folder).is_dir()) {
        return skip(format!("rustup target add {target}"));
    }
    let toolchain = workspace::toolchain(version).filter(|_| !is_windows);
    let is_unpacked = toolchain.is_none() && !is_windows;
    let unpacked = is_unpacked.then(|| workspace::unpack_rustc(version, &[debian]));
    let rustc = unpacked.transpose().or_else(|error| {
        skip(format!("no Rust {version} with a standard library for {debian} ({error:#})"))
    })?;
    let build = folder().join("cross");
    if is_windows {
        let programs = sh.create_dir(build.join(&target).join("debug/deps"))?;
        let (code, made) = (programs.join("random.c"), programs.join("bcryptprimitives.dll"));
        sh.write_file(&code, RANDOM)?;
        cmd!(sh, "{linker} -shared -o {made} {code} -ladvapi32").run()?;
    }
    let setting = |name| format!("CARGO_TARGET_{}_{name}", target.replace('-', "_").to_uppercase());
    let features = workspace::core_features();
    // A newer Rust is what some tools of the tests ask for, and do not need.
    let words = "test --ignore-rust-version --no-fail-fast --package dlbridge-sys --package dlbridge \
        --package dlbridge-sealed --lib --test it --test layout";
    let cargo = workspace::cargo(&sh, toolchain.as_deref())
        .args(words.split_whitespace())
        .args(["--target", &target, "--features", &features, "--"])
        .args(args)
        .args(NOT_EMULATED.iter().flat_map(|test| ["--skip", test]))
        .env("WINEPREFIX", build.join("wine"))
        .env("WINEDEBUG", "-all")
        .env("QEMU_LD_PREFIX", format!("/usr/{gcc}"))
        .env("CARGO_TARGET_DIR", build)
        .envs(rustc.iter().map(|rustc| ("RUSTC", rustc)))
        .env(setting("LINKER"), linker)
        .env(setting("RUNNER"), runner);
    tally.run(cargo)
}
