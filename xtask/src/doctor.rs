//! `cargo xtask doctor`: whether frameworks conform to DLPack. The checks are the Python package in
//! `extras/doctor/`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::{Cmd, cmd};

use crate::arguments::Doctor as Options;
use crate::python::{RELEASE, Set, Venv, resolve};
use crate::shell::{answer, root, shell, target};

/// Names the Python of the page; otherwise the newest that every framework supports, if it is on the
/// search path. pyenv's programs run only versions that are chosen.
const CHOICE: &str = "DLBRIDGE_DOCTOR_PYTHON";
const NEWEST: &str = "3.13";
const PROGRAM: &str = "import sys; print(sys.executable)";
const NOTES: [&str; 2] = [
    "polars 2.1.0 and pandas 3.1.1 have no __dlpack__, and CuPy needs a GPU: they are not examined",
    "max, ragged and scirs2 are packages that the doctor was not written for",
];
/// The modules of other libraries that the page has, from the benchmarks, and their factories.
const OBJECTS: [(&str, &str); 3] =
    [("dlpark", "make_exporter"), ("nanobind", "make"), ("pyo3_dlpack", "make_exporter")];

/// Runs the doctor with its own arguments, or writes the report.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.report {
        return report(&options.args);
    }
    let full = options.full.then(|| Set::named("full")).transpose()?;
    let venv = Venv::ready(&[&options.with.with[..], full.as_slice()].concat())?;
    venv.install_member("python", RELEASE)?;
    Ok(doctor(&venv, &[])?.args(&options.args).run()?)
}

/// Checks every framework and the objects of other libraries, and writes the pages.
fn report(args: &[String]) -> Result<()> {
    let sets = [Set::named("full")?, Set::named("bench")?, Set::named("doctor")?];
    let venv = match env::var_os(CHOICE).map(PathBuf::from).or_else(newest) {
        Some(program) => Venv::apart("doctor", &program)?,
        None => Venv::ready(&[])?,
    };
    for set in resolve(&sets)? {
        venv.install(&set)?;
    }
    venv.install_member("python", RELEASE)?;
    let names = OBJECTS.map(|(module, _)| module);
    let built = cmd!(venv.sh, "python benches modules {names...}");
    let built = built.env("CARGO_TARGET_DIR", &venv.target).read()?;
    // The folder, then the version of each library.
    let lines: Vec<_> = built.lines().collect();
    let (folder, versions) =
        lines[lines.len() - OBJECTS.len() - 1..].split_first().expect("a line for each");
    let [html, json, markdown] =
        ["doctor.html", "doctor.json", "doctor.md"].map(|name| target().join(name));
    let since = json.is_file().then(|| ["--since".into(), json.clone()]);
    let objects = OBJECTS.iter().zip(versions).map(|((module, factory), version)| {
        format!("{} {version}=bench_{module}:{factory}", module.replace('_', "-"))
    });
    let doctor = doctor(&venv, &[Path::new(folder)])?
        .env("DLPACK_DOCTOR_COMMAND", "cargo xtask doctor --report")
        .arg("--exit-zero")
        .args(NOTES.iter().flat_map(|note| ["--note", note]))
        .args(args)
        .args(since.into_iter().flatten());
    let doctor = doctor.arg("--markdown").arg(markdown).arg("--html").arg(html);
    Ok(doctor.arg("--json").arg(json).arg("installed").args(objects).run()?)
}

fn newest() -> Option<PathBuf> {
    let sh = shell();
    let program = cmd!(sh, "python{NEWEST} -c {PROGRAM}").env("PYENV_VERSION", NEWEST);
    answer(program).map(PathBuf::from)
}

/// The doctor of this repository, with more folders to import from.
fn doctor<'a>(venv: &'a Venv, folders: &[&Path]) -> Result<Cmd<'a>> {
    let own = root().join("extras/doctor");
    let path = env::join_paths([&*own].iter().chain(folders))?;
    Ok(cmd!(venv.sh, "python -m dlpack_doctor").env("PYTHONPATH", path))
}
