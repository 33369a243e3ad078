//! `cargo xtask lint`: every check that runs no tests. A tool that is not installed is skipped with
//! the command that installs it.

use anyhow::Result;
use xshell::cmd;

use crate::arguments::Lint as Options;
use crate::python::{Set, Venv};
use crate::shell::{succeeds, target};
use crate::steps::{Steps, skip};
use crate::workspace::{self, Member};
use crate::{guide, house, package, shell};

/// Crates that take most of the time of all adapters' crates.
const LARGE: [&str; 6] = ["arrow", "burn", "candle", "faer", "image", "nalgebra"];

/// Which adapters the oldest Rust checks.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Adapters {
    All,
    /// Those that are not over [`LARGE`] crates.
    Small,
}

/// Runs all checks, or those with other compilers.
pub(crate) fn run(options: &Options) -> Result<()> {
    Steps::run(|all| match options {
        Options { oldest: true, .. } => oldest(all),
        Options { quick: true, .. } => {
            quick(all, &Venv::ready(&[Set::named("lint")?])?);
            Ok(())
        }
        _ => {
            let venv = Venv::ready(&sets()?)?;
            all.beside(&["lint", "--oldest"])?;
            quick(all, &venv);
            compiled(all, &venv)
        }
    })
}

/// The Python packages of all checks.
pub(crate) fn sets() -> Result<[Set; 2]> {
    Ok([Set::named("lint")?, Set::named("guide")?])
}

/// The checks that compile nothing.
pub(crate) fn quick(steps: &mut Steps, venv: &Venv) {
    let sh = &venv.sh;
    steps.step("rustfmt", || Ok(cmd!(sh, "cargo fmt --all --check").run()?));
    steps.step("ruff check", || Ok(cmd!(sh, "python -m ruff check").run()?));
    steps.step("ruff format", || Ok(cmd!(sh, "python -m ruff format --check").run()?));
    steps.step("mypy", || {
        // From the folder of its configuration, which names the files.
        let _python = sh.push_dir("python");
        Ok(cmd!(sh, "python -m mypy").run()?)
    });
    steps.step("house rules", house::check);
}

/// The checks with the oldest Rust and dependencies, and with each adapter alone.
pub(crate) fn oldest(steps: &mut Steps) -> Result<()> {
    oldest_rust(steps, Adapters::All)?;
    let venv = Venv::ready(&[])?;
    steps.step("oldest dependencies", || oldest_dependencies(&venv));
    steps.step("each adapter alone", || each_adapter(&venv));
    Ok(())
}

/// Checks the libraries, and this program, with the oldest Rust that they support.
pub(crate) fn oldest_rust(steps: &mut Steps, adapters: Adapters) -> Result<()> {
    let venv = Venv::ready(&[])?;
    steps.step("oldest Rust", || with_oldest_rust(&venv, adapters));
    Ok(())
}

/// The checks that compile, also after one has failed.
pub(crate) fn compiled(steps: &mut Steps, venv: &Venv) -> Result<()> {
    let sh = &venv.sh;
    steps.step("clippy", || {
        let selection = "--workspace --all-targets --all-features".split(' ');
        Ok(cmd!(sh, "cargo clippy {selection...} -- -D warnings").run()?)
    });
    steps.step("each feature alone", || each_feature(venv));
    steps.step("cargo doc", || {
        // Links between private items lead somewhere as well. A link that says where it leads is redundant only there.
        let words = "doc --workspace --all-features --no-deps --document-private-items".split(' ');
        let doc = cmd!(sh, "cargo {words...}");
        Ok(doc.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::redundant_explicit_links").run()?)
    });
    steps.step("packed crates", || package::pack_and_drop(sh));
    steps.step("guide", || guide::build(venv).map(drop));
    steps.step("licences and advisories", || {
        if !succeeds(cmd!(sh, "cargo deny --version")) {
            return skip("cargo install cargo-deny --locked");
        }
        Ok(cmd!(sh, "cargo deny --workspace check").run()?)
    });
    Ok(())
}

/// Each library that has features: with none, where its errors name those that are missing, and with each one that is no
/// adapter. (The step `clippy` has all.)
fn each_feature(venv: &Venv) -> Result<()> {
    for library in workspace::libraries()?.iter().filter(|it| !it.features().is_empty()) {
        clippy_alone(venv, library, "")?;
        if shell::root().join(library.folder()).join("tests/without_features.rs").exists() {
            let name = library.name();
            let test = "--no-default-features --test without_features".split(' ');
            let test = cmd!(venv.sh, "cargo test --quiet --package {name} {test...}");
            venv.embedding(test).run()?;
        }
        let others = library.features().into_iter().filter(|it| !is_adapter(library, it));
        others.into_iter().try_for_each(|feature| clippy_alone(venv, library, &feature))?;
    }
    Ok(())
}

/// Each adapter alone, whose examples run: with all features, another one may give them what they lack. Those over large
/// crates are checked at once: they cannot interact, since each adapter has a folder of its own, and most of the time goes into
/// their crates. (`cargo xtask package` builds each one alone.)
fn each_adapter(venv: &Venv) -> Result<()> {
    for library in workspace::libraries()? {
        let adapters = library.features().into_iter().filter(|it| is_adapter(&library, it));
        let (large, small): (Vec<_>, Vec<_>) = adapters.partition(|it| is_large(it));
        for feature in &small {
            let chosen = "--no-default-features --features".split(' ');
            let (name, page) = (library.name(), format!("adapters::{}", feature.replace('-', "_")));
            let test = cmd!(venv.sh, "cargo test --quiet --doc --package {name} {chosen...}");
            test.args([feature, "--", &page]).run()?;
        }
        for chosen in small.into_iter().chain((!large.is_empty()).then(|| large.join(","))) {
            clippy_alone(venv, &library, &chosen)?;
        }
    }
    Ok(())
}

fn is_adapter(library: &Member, feature: &str) -> bool {
    let adapters = shell::root().join(library.folder()).join("src/adapters/mod.rs");
    let adapters = std::fs::read_to_string(adapters).unwrap_or_default();
    adapters.contains(&format!("pub mod {}", feature.replace('-', "_")))
}

fn clippy_alone(venv: &Venv, library: &Member, features: &str) -> Result<()> {
    let (name, chosen) = (library.name(), "--no-default-features --features".split(' '));
    let clippy = cmd!(venv.sh, "cargo clippy --package {name} --lib {chosen...} {features}");
    Ok(clippy.args(["--", "-D", "warnings"]).run()?)
}

fn is_large(feature: &str) -> bool {
    LARGE.iter().any(|name| feature.starts_with(name))
}

fn with_oldest_rust(venv: &Venv, adapters: Adapters) -> Result<()> {
    let members = workspace::members()?;
    let version = members.first().map_or("", |member| member.text("rust_version"));
    let toolchain = workspace::toolchain(version);
    let unpacked = toolchain.is_none().then(|| workspace::unpack_rustc(version, &[]));
    let rustc = unpacked.transpose().or_else(|error| {
        skip(format!("no Rust {version}: rustup toolchain install {version} ({error:#})"))
    })?;
    let (mut packages, mut features) = (Vec::new(), Vec::new());
    for member in members.iter().filter(|one| one.is_library() || one.name() == "xtask") {
        let name = member.name();
        packages.extend(["--package", name]);
        let fit = member.features_for(version);
        let chosen = fit.iter().filter(|it| adapters == Adapters::All || !is_large(it));
        features.extend(chosen.map(|feature| format!("{name}/{feature}")));
    }
    let (folder, features) = (target().join("msrv-check"), features.join(","));
    let check = workspace::cargo(&venv.sh, toolchain.as_deref()).args(["check", "--lib", "--bins"]);
    let check = check.args(packages).args(["--features", &features, "--target-dir"]).arg(&folder);
    Ok(check.envs(rustc.iter().map(|rustc| ("RUSTC", rustc))).run()?)
}

/// Checks the libraries with the oldest dependencies that their manifests allow, in a copy of the
/// sources: the lock file of this folder stays as it is.
fn oldest_dependencies(venv: &Venv) -> Result<()> {
    let Some(nightly) = workspace::toolchain("nightly") else {
        return skip("only a nightly cargo does it: rustup toolchain install nightly");
    };
    let folder = target().join("minimal-versions");
    let copy = folder.join("source");
    workspace::copy(&venv.sh, &copy)?;
    let libraries = workspace::libraries()?;
    let packages = libraries.iter().flat_map(|library| ["--package", library.name()]);
    let _copy = venv.sh.push_dir(&copy);
    let cargo = workspace::cargo(&venv.sh, Some(&nightly));
    cargo.args(["update", "--quiet", "-Zdirect-minimal-versions"]).run()?;
    let check = cmd!(venv.sh, "cargo check --lib --all-features {packages...}");
    Ok(check.arg("--target-dir").arg(folder.join("target")).run()?)
}
