//! Building the modules that are measured, into `target/bench/python`.
//! Which there are does not belong here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::libraries::{Library, OURS, Source};
use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::venv::Venv;

/// Where the sources lie.
pub(crate) const SOURCES: &str = "benches/python";
/// The module that calls and counts.
const METER: &str = "meter";
/// Prints where Python's headers lie.
const INCLUDE: &str = "import sysconfig; print(sysconfig.get_path('include'))";
/// Prints the folder of the installed package nanobind.
const NANOBIND: &str = "import nanobind; print(nanobind.__path__[0])";
/// As for a module that is to be fast, with every warning that finds mistakes.
const C_FLAGS: [&str; 6] =
    ["-O3", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-Wall"];
/// What nanobind's own build sets for a release.
const CPP_FLAGS: [&str; 8] = [
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-DNDEBUG",
    "-DNB_COMPACT_ASSERTIONS",
];

/// Everything that a build needs to know.
#[derive(Debug)]
pub(crate) struct Workshop<'a> {
    venv: &'a Venv,
    /// Where Python's headers lie.
    include: PathBuf,
    folder: PathBuf,
}

impl<'a> Workshop<'a> {
    /// Asks the environment's Python.
    pub(crate) fn open(venv: &'a Venv) -> Result<Self> {
        let include = PathBuf::from(ask(venv, INCLUDE)?);
        if !include.join("Python.h").is_file() {
            return Err(Failure::new(format!(
                "there is no {}: install Python's development package (Debian and Ubuntu: \
                 python3-dev)",
                include.join("Python.h").display()
            )));
        }
        // Modules of one Python are no use to another.
        let folder = if venv.is_apart() { "python-apart" } else { "python" };
        Ok(Self { venv, include, folder: bench_folder()?.join(folder) })
    }

    /// The environment.
    pub(crate) fn venv(&self) -> &Venv {
        self.venv
    }

    /// Where the built modules lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Builds what calls and counts.
    pub(crate) fn meter(&self) -> Result {
        self.compile_c(METER)
    }

    /// Builds a library's module.
    pub(crate) fn build(&self, library: &Library) -> Result {
        match library.source {
            Source::C => self.compile_c(library.module),
            Source::Member => self.member(),
            Source::Crate => self.own_workspace(library),
            Source::Nanobind => self.nanobind(library),
            Source::Python => self.python(library),
        }
    }

    /// The version of what a peer is built from.
    pub(crate) fn version(&self, library: &Library) -> Option<String> {
        let package = library.package()?;
        if library.source == Source::Crate {
            let lock = project::read(&peer(library).join("Cargo.lock")).ok()?;
            return locked_version(&lock, package).map(str::to_owned);
        }
        let question = format!("import importlib.metadata as m; print(m.version('{package}'))");
        ask(self.venv, &question).ok()
    }

    fn compile_c(&self, module: &str) -> Result {
        let sources = project::files_in(&project::path(SOURCES).join(module), "c");
        let mut cc = self.venv.program("cc");
        cc.args(C_FLAGS).arg("-I").arg(&self.include).args(sources);
        build(cc.arg("-o").arg(self.target(module)?))
    }

    /// Cargo for modules of the environment's Python.
    fn cargo(&self) -> Command {
        let mut cargo = self.venv.program("cargo");
        if self.venv.is_apart() {
            // A Python without a shared library would be linked into the module.
            cargo.env("PYO3_BUILD_EXTENSION_MODULE", "1");
        }
        cargo
    }

    fn member(&self) -> Result {
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--profile", "wheel", "--package", "dlbridge-bench"]);
        build(&mut cargo)?;
        self.take(&self.venv.target_folder()?.join("wheel"), OURS.module)
    }

    fn own_workspace(&self, library: &Library) -> Result {
        let target = bench_folder()?.join("peers");
        let mut cargo = self.cargo();
        cargo.args(["build", "--quiet", "--release", "--locked", "--manifest-path"]);
        build(cargo.arg(peer(library).join("Cargo.toml")).arg("--target-dir").arg(&target))?;
        self.take(&target.join("release"), library.module)
    }

    fn nanobind(&self, library: &Library) -> Result {
        let package = PathBuf::from(ask(self.venv, NANOBIND)?);
        let mut cpp = self.venv.program("c++");
        cpp.args(CPP_FLAGS).arg("-I").arg(&self.include);
        for folder in ["include", "ext/robin_map/include"] {
            cpp.arg("-I").arg(package.join(folder));
        }
        cpp.arg(package.join("src/nb_combined.cpp"));
        cpp.args(project::files_in(&peer(library), "cpp"));
        build(cpp.arg("-o").arg(self.target(library.module)?))
    }

    fn python(&self, library: &Library) -> Result {
        let name = format!("bench_{}.py", library.module);
        let text = project::read(&peer(library).join(&name))?;
        project::write(&self.folder.join(name), text)
    }

    /// Copies a module from where cargo left it.
    fn take(&self, folder: &Path, module: &str) -> Result {
        let built = folder.join(format!("libbench_{module}.so"));
        let target = self.target(module)?;
        fs::copy(&built, &target)
            .map_err(|error| Failure::new(format!("cannot copy {}: {error}", built.display())))?;
        Ok(())
    }

    /// The file of a module, not there yet: one that is loaded must not be written over.
    fn target(&self, module: &str) -> Result<PathBuf> {
        let file = self.folder.join(format!("bench_{module}.so"));
        project::make_folder(&self.folder)?;
        let _ = fs::remove_file(&file);
        Ok(file)
    }
}

/// The folder of everything that is built or written for a measurement.
pub(crate) fn bench_folder() -> Result<PathBuf> {
    Ok(project::target_folder()?.join("bench"))
}

fn peer(library: &Library) -> PathBuf {
    project::path(SOURCES).join("peers").join(library.module)
}

/// Asks the environment's Python; of its complaints, the last line names the error.
fn ask(venv: &Venv, question: &str) -> Result<String> {
    let answer = command::output(venv.run_python().args(["-c", question]));
    let answer = answer
        .map_err(|failure| Failure::new(failure.message().lines().last().unwrap_or_default()))?;
    Ok(answer.trim().to_owned())
}

/// Runs a compiler; of its complaints, the first error is told.
fn build(compiler: &mut Command) -> Result {
    let built = command::output(compiler).map_err(|failure| {
        println!("{}", failure.message());
        Failure::new(first_error(failure.message()))
    });
    built.map(drop)
}

/// The first error of a compiler, without the paths of this machine.
fn first_error(complaint: &str) -> String {
    let mut lines = complaint.lines().map(str::trim);
    let error = lines.clone().find(|line| line.starts_with("error") || line.contains(": error"));
    let error = error.or_else(|| lines.next()).unwrap_or_default();
    error.replace(&format!("{}/", project::root().display()), "")
}

/// A package's version in a lock file: the line after its name.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::{first_error, locked_version, peer};
    use crate::bench::libraries::{PEERS, Source};
    use crate::project;

    #[test]
    fn the_first_error_is_told() {
        let cargo = "`cargo build` failed\nwarning: x\nerror: package needs rustc 1.88\n  more";
        assert_eq!(first_error(cargo), "error: package needs rustc 1.88");
        let cc = "`cc a.c` failed\na.c:1: note\na.c:3:5: error: no type";
        assert_eq!(first_error(cc), "a.c:3:5: error: no type");
        assert_eq!(first_error("`cc` does not start"), "`cc` does not start");
    }

    #[test]
    fn every_crate_is_locked() {
        for library in PEERS.iter().filter(|library| library.source == Source::Crate) {
            let lock = project::read(&peer(library).join("Cargo.lock")).unwrap();
            assert!(locked_version(&lock, library.package().unwrap()).is_some(), "{lock}");
        }
    }
}
