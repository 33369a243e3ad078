//! `cargo xtask test`: every test of the project, and one line that sums them up.

use crate::args::Args;
use crate::commands::setup;
use crate::counted::{Counted, run_tests};
use crate::examples;
use crate::failure::Result;
use crate::freethreaded;
use crate::julia::{self, Julia};
use crate::libpython::Libpython;
use crate::manifest::{self, EXAMPLE_WHEEL, Member, WHEEL};
use crate::project;
use crate::requirements::{self, FULL};
use crate::rustup;
use crate::tally::Tally;
use crate::venv::Venv;
use crate::wheel;

/// Where the Python tests lie, those of the doctor too, and the configuration for both.
const PYTHON_TESTS: [&str; 4] = ["-c", "python/pyproject.toml", "python/tests", "doctor/tests"];

/// Chooses the Python tests on a free-threaded Python.
const FREE_THREADED: &str = "free-threaded";

/// Runs all tests, or those of one language with arguments for its test runner.
pub(crate) fn run(mut args: Args) -> Result {
    let with = args.list(setup::WITH)?;
    let language = args.choice(&["rust", "python", "julia", FREE_THREADED])?;
    let rest = args.rest();
    if language == Some(FREE_THREADED) {
        let mut steps = Counted::default();
        free_threaded(&rest, &mut steps);
        return steps.finish();
    }
    run_of(language, &rest, Tests::prepare(&with)?, |_| Ok(()))
}

/// Runs all tests, those of Python on a free-threaded Python, too, and then more steps, which the
/// summary and the sum include.
pub(crate) fn run_everything(more: impl FnOnce(&mut Counted) -> Result) -> Result {
    let mut tests = Tests::prepare(&[])?;
    if !tests.venv.facts().free_threaded {
        free_threaded(&[], &mut tests.steps);
    }
    run_of(None, &[], tests, more)
}

fn run_of(
    language: Option<&str>,
    rest: &[String],
    mut tests: Tests,
    more: impl FnOnce(&mut Counted) -> Result,
) -> Result {
    let wants = |name| language.is_none_or(|language| language == name);
    if wants("rust") {
        tests.rust(rest);
    }
    if wants("python") {
        tests.python(rest);
    }
    if wants("julia") {
        tests.julia(rest);
    }
    if language.is_none() {
        tests.examples()?;
    }
    more(&mut tests.steps)?;
    tests.note_missing_frameworks()?;
    tests.steps.finish()
}

/// A run of the tests.
struct Tests {
    venv: Venv,
    libpython: Libpython,
    julia: Julia,
    /// Members that cannot be tested, for want of a libpython.
    left_out: Vec<Member>,
    /// What tells cargo the features that this Rust can build.
    features: Vec<String>,
    steps: Counted,
}

impl Tests {
    fn prepare(with: &[String]) -> Result<Self> {
        let venv = setup::ready(with)?;
        let libpython = Libpython::of(&venv)?;
        let mut steps = Counted::default();
        let mut left_out = Vec::new();
        if let Libpython::Missing(reason) = &libpython {
            left_out = manifest::embedding_python()?;
            steps.skip("tests that embed Python", reason);
        }
        let julia = julia::find()?;
        let features = features(&mut steps)?;
        Ok(Self { venv, libpython, julia, left_out, features, steps })
    }

    fn rust(&mut self, args: &[String]) {
        let Self { venv, libpython, julia, left_out, features, steps } = self;
        steps.step("cargo test", |tally| {
            let mut cargo = venv.program("cargo");
            if let Julia::Program(program) = julia {
                cargo.env(julia::CHOICE, program);
            }
            cargo.args(["test", "--no-fail-fast"]).args(&*features);
            if !names_packages(args) {
                cargo.arg("--workspace");
                for member in left_out {
                    cargo.args(["--exclude", member.name()?]);
                }
            }
            run_tests(libpython.lend(cargo.args(args)), Tally::from_cargo, tally)
        });
    }

    fn python(&mut self, args: &[String]) {
        let venv = &self.venv;
        let name = format!("pytest, {}", venv.facts());
        self.steps.step(&name, |tally| pytest(venv, args, tally));
    }

    fn julia(&mut self, files: &[String]) {
        let Self { venv, julia, steps, .. } = self;
        match julia {
            Julia::Program(program) => {
                steps.step("Julia", |tally| julia::test(program, venv, files, tally));
            }
            Julia::Missing(reason) => steps.skip("Julia", &**reason),
        }
    }

    fn examples(&mut self) -> Result {
        let Self { venv, libpython, left_out, steps, .. } = self;
        for example in examples::all(left_out)? {
            steps.step(&example.name(), |tally| {
                example.run(venv, libpython)?;
                *tally += Tally::PASSED;
                Ok(())
            });
        }
        Ok(())
    }

    fn note_missing_frameworks(&mut self) -> Result {
        let mut sets = requirements::resolve([FULL])?;
        sets.retain(|set| !self.venv.has(set));
        if !sets.is_empty() {
            let names = sets.iter().map(|set| &set.name[..]).collect::<Vec<_>>().join(",");
            let way = format!("not installed: cargo xtask test {} {names}", setup::WITH);
            self.steps.skip("tests with other frameworks", way);
        }
        Ok(())
    }
}

/// Runs the Python tests on a free-threaded Python, where one is found or can be built.
fn free_threaded(args: &[String], steps: &mut Counted) {
    match freethreaded::environment() {
        Ok(Ok(venv)) => {
            let name = format!("pytest, {}", venv.facts());
            steps.step(&name, |tally| pytest(&venv, args, tally));
        }
        Ok(Err(reason)) => steps.skip("tests on a free-threaded Python", reason),
        Err(failure) => steps.step("a free-threaded Python", |_| Err(failure)),
    }
}

/// Builds and installs the wheels as users get them, and runs the tests of Python.
fn pytest(venv: &Venv, args: &[String], tally: &mut Tally) -> Result {
    wheel::build_and_install(venv, WHEEL)?;
    wheel::build_and_install(venv, EXAMPLE_WHEEL)?;
    let mut pytest = venv.run_python();
    pytest.args(["-m", "pytest", "-ra"]).args(args);
    if !names_files(args) {
        pytest.args(PYTHON_TESTS);
    }
    run_tests(&mut pytest, Tally::from_pytest, tally)
}

/// All features, but for those whose crates want a newer Rust: they are skipped, and named.
fn features(steps: &mut Counted) -> Result<Vec<String>> {
    let rust = rustup::current()?;
    let (all, mut fit) = (manifest::features()?, manifest::features_for_rust(&rust)?);
    let unfit: Vec<_> = all.iter().filter(|feature| !fit.contains(feature)).cloned().collect();
    if unfit.is_empty() {
        return Ok(vec!["--all-features".to_owned()]);
    }
    let reason = format!("Rust {rust} is too old for {}", unfit.join(", "));
    steps.skip("some adapters", reason);
    fit.iter_mut().for_each(|feature| feature.insert_str(0, "dlbridge/"));
    Ok(vec!["--features".to_owned(), fit.join(",")])
}

/// Whether arguments for cargo choose packages themselves.
fn names_packages(args: &[String]) -> bool {
    let cargo_args = args.iter().take_while(|arg| *arg != "--");
    let flags = ["-p", "--package", "--manifest-path"];
    cargo_args.into_iter().any(|arg| flags.iter().any(|flag| arg.starts_with(flag)))
}

/// Whether arguments for pytest name files or folders.
fn names_files(args: &[String]) -> bool {
    let file = |arg: &String| project::path(arg.split("::").next().unwrap_or(arg)).exists();
    args.iter().any(|arg| !arg.starts_with('-') && file(arg))
}

#[cfg(test)]
mod tests {
    use super::{names_files, names_packages};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn packages_are_named_before_the_dashes() {
        assert!(names_packages(&words("-p dlbridge-sys")));
        assert!(names_packages(&words("--package=dlbridge name")));
        assert!(!names_packages(&words("reversed -- -p")));
    }

    #[test]
    fn only_existing_files_count_as_named() {
        assert!(names_files(&words("xtask/Cargo.toml::name")));
        assert!(!names_files(&words("-k numpy")));
    }
}
