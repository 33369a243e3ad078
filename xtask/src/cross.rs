//! `cargo xtask test cross`: the core's tests on other machines, which QEMU emulates.

use anyhow::Result;
use xshell::cmd;

use crate::shell::{shell, succeeds, target as folder};
use crate::steps::{Steps, Tally, skip};
use crate::workspace::{self, CORE_FEATURES};

/// Another machine: its name for Debian, Rust, GCC and QEMU.
struct Machine {
    debian: &'static str,
    rust: &'static str,
    gcc: &'static str,
    qemu: &'static str,
}

const MACHINES: [Machine; 3] = [
    // Another architecture.
    Machine { debian: "arm64", rust: "aarch64", gcc: "aarch64-linux-gnu", qemu: "aarch64" },
    // Pointers of 32 bits.
    Machine { debian: "i386", rust: "i686", gcc: "i686-linux-gnu", qemu: "i386" },
    // Big-endian.
    Machine { debian: "s390x", rust: "s390x", gcc: "s390x-linux-gnu", qemu: "s390x" },
];

/// Runs the tests on every machine.
pub(crate) fn run(args: &[String], steps: &mut Steps) {
    for machine in &MACHINES {
        steps.count(&format!("core on {}", machine.rust), |tally| test(machine, args, tally));
    }
}

fn test(machine: &Machine, args: &[String], tally: &mut Tally) -> Result<()> {
    let Machine { debian, rust, gcc, qemu } = machine;
    let (linker, emulator) = (format!("{gcc}-gcc"), format!("qemu-{qemu}-static"));
    let (sh, package) = (shell(), format!("gcc-{gcc}"));
    if !succeeds(cmd!(sh, "{linker} --version")) || !succeeds(cmd!(sh, "{emulator} --version")) {
        return skip(format!("apt-get install {package} qemu-user-static"));
    }
    let members = workspace::members()?;
    let version = members.first().map_or("", |member| member.text("rust_version"));
    let toolchain = workspace::toolchain(version);
    let unpacked = toolchain.is_none().then(|| workspace::unpack_rustc(version, &[debian]));
    let rustc = unpacked.transpose().or_else(|error| {
        skip(format!("no Rust {version} with a standard library for {debian} ({error:#})"))
    })?;
    let target = format!("{rust}-unknown-linux-gnu");
    let setting = |name| format!("CARGO_TARGET_{}_{name}", target.replace('-', "_").to_uppercase());
    let features =
        format!("dlbridge/{CORE_FEATURES},ndarray-0_17,sealed").replace(',', ",dlbridge/");
    // A newer Rust is what some tools of the tests ask for, and do not need. QEMU says of files on
    // disk that they are memory files.
    let cargo = workspace::cargo(&sh, toolchain.as_deref())
        .args(["test", "--ignore-rust-version", "--no-fail-fast", "--target", &target])
        .args(["--package", "dlbridge-sys", "--package", "dlbridge", "--features", &features])
        .args(["--lib", "--test", "it", "--test", "layout", "--"])
        .args(args)
        .args(["--skip", "what_is_no_memory_file_is_refused"])
        .env("CARGO_TARGET_DIR", folder().join("cross"))
        .envs(rustc.iter().map(|rustc| ("RUSTC", rustc)))
        .env(setting("LINKER"), linker);
    tally.run(cargo.env(setting("RUNNER"), format!("{emulator} -L /usr/{gcc}")))
}
