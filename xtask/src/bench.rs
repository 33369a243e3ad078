//! `cargo xtask bench`: prepares the environment and the program in Rust; `benches/` measures, and
//! makes tables and charts.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::arguments::{Bench as Options, SUITES};
use crate::julia;
use crate::python::{PINS, RELEASE, Set, Venv, resolve};
use crate::shell::{each_line, lacks_valgrind, target};
use crate::steps::{Steps, skip};

/// Runs the measurements of one language, or of all.
pub(crate) fn run(options: &Options) -> Result<()> {
    let (write, part) = (options.write.then_some("--write"), options.part.as_deref());
    Steps::run(|steps| {
        let venv = match &options.python {
            Some(path) => Venv::apart("bench-venv", path)?,
            None => Venv::ready(&options.with.with)?,
        };
        if options.check {
            steps.step("instructions", || check(&venv, options.write));
            return Ok(());
        }
        if options.suite.as_deref() == Some("operators") {
            has_frameworks(&venv)?;
        }
        let needs_others = !options.quick && options.suite.as_deref() != Some("threads");
        if write.is_some() || needs_others {
            install(&venv, steps)?;
        }
        for suite in SUITES.iter().filter(|it| options.suite.as_ref().is_none_or(|one| one == *it))
        {
            steps.step(&format!("measure: {suite}"), || match *suite {
                "rust" => rust(&venv, part, write),
                "python" => in_python(&venv, options, write),
                "calls" => {
                    venv.install_member("python", RELEASE)?;
                    Ok(cmd!(venv.sh, "python benches {write...} calls").run()?)
                }
                "operators" => {
                    let gpu = options.gpu.then_some("--gpu");
                    Ok(cmd!(venv.sh, "python benches {write...} operators {gpu...}").run()?)
                }
                "threads" => in_threads(&venv, write),
                "processes" => in_processes(&venv, write),
                _ => in_julia(&venv, write),
            });
        }
        Ok(())
    })
}

fn in_python(venv: &Venv, options: &Options, write: Option<&str>) -> Result<()> {
    let quick = options.quick.then_some("--quick");
    // A Python without a shared library would be linked into the modules.
    let is_apart = options.python.is_some().then_some(("PYO3_BUILD_EXTENSION_MODULE", "1"));
    let part = &options.part;
    let measure = cmd!(venv.sh, "python benches {write...} python {part...} {quick...}");
    Ok(measure.env("CARGO_TARGET_DIR", &venv.target).envs(is_apart).run()?)
}

/// Calls by one thread and by more, which say something where a Python without the GIL has many cores.
fn in_threads(venv: &Venv, write: Option<&str>) -> Result<()> {
    venv.install_member("python", RELEASE)?;
    venv.install_member("examples/python-extension", RELEASE)?;
    Ok(cmd!(venv.sh, "python benches {write...} threads").run()?)
}

/// Whether the frameworks are there that have operators: said first, because what is installed next takes a minute.
fn has_frameworks(venv: &Venv) -> Result<()> {
    let code = "import importlib.util as it; print(*[n for n in ('torch', 'jax') if not it.find_spec(n)], sep=',')";
    let python = venv.python()?;
    let missing = cmd!(venv.sh, "{python} -c {code}").quiet().read()?;
    ensure!(
        missing.is_empty(),
        "{missing}: not installed; cargo xtask bench operators --with {missing}"
    );
    Ok(())
}

/// Installs what charts and other libraries need.
fn install(venv: &Venv, steps: &mut Steps) -> Result<()> {
    for set in resolve(&[Set::named("bench")?, Set::named("tvm-ffi")?])? {
        steps.step(&format!("install {}", set.name), || venv.install(&set).or_else(skip));
    }
    Ok(())
}

/// Counts the instructions of calls in Python, where NumPy is the only other package and beside frameworks, and
/// compares with the checked-in counts, or writes them.
fn check(venv: &Venv, write: bool) -> Result<()> {
    let reason = lacks_valgrind(&venv.sh);
    if let Some(reason) = reason.or((!cfg!(target_os = "linux")).then_some("Linux only")) {
        return skip(reason);
    }
    let (bare, package) = (target().join("bench/bare"), target().join("bench/package"));
    let (own, wheel) = (venv.python()?, venv.build_wheel("python", RELEASE)?);
    // Tests that run at the same time install their wheel into `.venv`, so this one has a folder of its own.
    venv.sh.remove_path(&package)?;
    let install = "-m pip install --quiet --no-deps --target".split(' ');
    cmd!(venv.sh, "{own} {install...} {package} {wheel}").run()?;
    cmd!(venv.sh, "{own} -m venv {bare}").run()?;
    let (bare, install) = (bare.join("bin/python"), "-m pip install --quiet".split(' '));
    let pins = ["numpy", "-c", PINS];
    cmd!(venv.sh, "{bare} {install...} {pins...}").run()?;
    let write = write.then_some("--write");
    let check = cmd!(venv.sh, "python benches {write...} check {bare}");
    each_line(check.env("PYTHONPATH", package), |line| println!("{line}"), None)
}

/// Builds the program in Rust.
fn program(venv: &Venv, part: Option<&str>) -> Result<PathBuf> {
    let folder = target().join("bench-rust");
    // Only shares need other crates, which take minutes to build.
    let needs_crates = part.is_none_or(|part| part == "shares");
    let features = (!needs_crates).then_some("--no-default-features");
    let build = cmd!(venv.sh, "cargo build --release --locked --target-dir {folder} {features...}");
    build.args(["--manifest-path", "benches/rust/Cargo.toml"]).run()?;
    Ok(folder.join("release/dlbridge-bench-rust"))
}

fn in_processes(venv: &Venv, write: Option<&str>) -> Result<()> {
    if !cfg!(target_os = "linux") {
        return skip("sealed memory is for Linux");
    }
    venv.install_member("python", RELEASE)?;
    let program = program(venv, Some("processes"))?;
    Ok(cmd!(venv.sh, "python benches {write...} processes {program}").run()?)
}

fn rust(venv: &Venv, part: Option<&str>, write: Option<&str>) -> Result<()> {
    let program = program(venv, part)?;
    Ok(cmd!(venv.sh, "python benches {write...} rust {program} {part...}").run()?)
}

fn in_julia(venv: &Venv, write: Option<&str>) -> Result<()> {
    let lines = julia::bench(&julia::find()?, venv)?.read()?;
    if let Some(reason) = lines.strip_prefix("skipped\t") {
        return skip(reason.trim());
    }
    let file = target().join("bench/julia.tsv");
    venv.sh.write_file(&file, lines)?;
    Ok(cmd!(venv.sh, "python benches {write...} julia {file}").run()?)
}
