//! `cargo xtask test`: every test of the project, and one line that sums them up.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::arguments::{Suite, Test as Options};
use crate::calls::{calls, names_package};
use crate::python::{LIBRARY_PATH, RELEASE, Set, Venv, others, prepended, resolve, test_profile};
use crate::shell::{answer, debug_folder, files_in, root, shell, stem, target};
use crate::steps::{Steps, skip};
use crate::tally::Tally;
use crate::workspace::{self, Member};
use crate::{cross, fuzz, julia, lint};

/// The Python tests, those of the doctor included, and the configuration of both: pytest would take that of the first file.
const PYTHON_TESTS: [&str; 2] = ["python/tests", "extras/doctor/tests"];
const CONFIGURATION: [&str; 2] = ["-c", "python/pyproject.toml"];
/// The members whose wheels they test.
const MEMBERS: [&str; 2] = ["python", "examples/python-extension"];
/// The full suite of Python tests runs in so many processes, one for each core of a CI machine.
const WORKERS: &str = "2";
/// Versions of PyO3 that are tested beside the one in the lock file, which is the newest: the oldest that the
/// manifest allows, and one between.
const OLDER_PYO3: [&str; 2] = ["0.27.2", "0.28.3"];
/// The oldest versions of PyTorch and JAX that have operators, and the newest that the index has.
const OPERATORS: [[&str; 2]; 2] = [["torch==2.10.0", "jax==0.5.0"], ["torch", "jax"]];
/// Tests in Rust that only `--long` runs, with what they find: CONTRIBUTING.md has the reasons. Those in Python have the mark
/// `long`.
const LONG: [&str; 5] = [
    "a_check_after_maturin_builds_nothing_again",
    "a_new_project_builds_and_passes_its_tests",
    "a_generated_stub_names_the_types_of_arguments_and_results",
    "a_hundred_thousand_messages_leak_nothing",
    "misuse_does_not_compile",
];
/// Set where long tests run: tests with random calls make more of them.
const IS_LONG: &str = "DLBRIDGE_LONG";
/// What is tested on other Pythons than that of `.venv`: what depends on the interpreter.
const INTERPRETER: [&str; 5] = ["buffer", "buffer_export", "classes", "release", "threads"];
const ALL_FEATURES: [&str; 1] = ["--all-features"];
const NOT_LONG: [&str; 2] = ["-m", "not long"];

/// Runs all tests, or those of one suite with arguments for its test runner.
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { with, quick: is_quick, long: is_long, beside: is_beside, suite, args } = options;
    let venv = || Venv::ready(&with.with);
    Steps::run(|steps| {
        match suite {
            _ if *is_quick => quick(steps)?,
            _ if *is_beside => long_beside(&venv()?, steps)?,
            _ if *is_long => {
                let tests = Tests { is_long: true, ..Tests::prepare(&with.with, steps)? };
                // Unpacked here, for the tests in Rust and those beside them.
                julia::find().ok();
                steps.beside(&["test", "--long", "--beside"])?;
                tests.all(steps)?;
            }
            None => {
                let tests = Tests::prepare(&with.with, steps)?;
                if julia::here()?.is_some() {
                    steps.beside(&["test", "julia"])?;
                } else {
                    steps.skip("Julia", "cargo xtask test julia unpacks one");
                }
                steps.plan(4);
                tests.all(steps)?;
                steps.join()?;
                about(steps);
            }
            Some(Suite::Rust) => {
                // clap drops the dashes where they are the first argument.
                let dashes = std::env::args().nth(3).filter(|word| word == "--");
                let args: Vec<_> = dashes.into_iter().chain(args.iter().cloned()).collect();
                Tests::prepare(&with.with, steps)?.rust(&args, steps)?;
            }
            Some(Suite::Python) => python(&venv()?, &test_profile(), args, steps),
            Some(Suite::FreeThreaded) => free_threaded(args, steps),
            Some(Suite::Abi3t) => abi3t(args, steps),
            Some(Suite::Pyo3) => older_pyo3(&venv()?, &OLDER_PYO3, args, steps),
            Some(Suite::Operators) => operators(&venv()?, args, steps),
            Some(Suite::Cross) => cross::run(args, steps),
            Some(Suite::Julia) => julia(&venv()?, args, steps),
        }
        Ok(())
    })
}

/// What a newcomer wants to know at the end.
fn about(steps: &mut Steps) {
    let sh = shell();
    let folders = [target(), root().join(".venv")];
    let sizes = answer(cmd!(sh, "du -sh {folders...}")).unwrap_or_default();
    for (size, folder) in sizes.lines().filter_map(|line| line.split_once('\t')) {
        steps.note(format!("{folder} takes {size} on disk; a later command uses it again"));
    }
    let log = target().join("logs");
    steps.note(format!("all that the tests printed: {}", log.display()));
    let next = if steps.have_failed() {
        "next: `cargo xtask test rust -p CRATE --test FILE NAME` or `cargo xtask test python FILE -k NAME` runs one test again"
    } else {
        "next: `cargo xtask new ../my-extension` starts an extension; `cargo xtask demo --with torch` shows PyTorch's tensors in Rust"
    };
    steps.note(next.to_owned());
}

/// The tests of CI that have no process of their own.
pub(crate) fn everything(steps: &mut Steps) -> Result<()> {
    Tests { profile: RELEASE.to_owned(), ..Tests::prepare(&[], steps)? }.all(steps)
}

/// What depends on the interpreter, on a Python without the GIL.
pub(crate) fn free_threaded_interpreter(steps: &mut Steps) -> Result<()> {
    if !Venv::ready(&[])?.facts.free_threaded {
        free_threaded(&of_the_interpreter(), steps);
    }
    Ok(())
}

/// What `--long` runs in folders of its own.
fn long_beside(venv: &Venv, steps: &mut Steps) -> Result<()> {
    free_threaded_interpreter(steps)?;
    julia(venv, &[], steps);
    abi3t(&of_the_interpreter(), steps);
    older_pyo3(venv, &OLDER_PYO3, &[], steps);
    fuzz::each_target(steps)?;
    lint::oldest(steps)
}

fn of_the_interpreter() -> Vec<String> {
    INTERPRETER.map(|name| format!("python/tests/test_{name}.py")).to_vec()
}

/// What a change is most likely to break, while working on it.
fn quick(steps: &mut Steps) -> Result<()> {
    let venv = Venv::ready(&[])?;
    steps.count("cargo test of the core", |tally| {
        let packages = "--package dlbridge-sys --package dlbridge --lib --tests".split(' ');
        let test = cmd!(venv.sh, "cargo test --no-fail-fast {packages...} --features");
        tally.run(test.arg(workspace::core_features()))
    });
    let marks = "not slow and not long";
    let args = [
        "-m",
        marks,
        "--ignore=extras/doctor/tests",
        "--ignore=python/tests/test_quirks.py",
        "--ignore=python/tests/test_torch.py",
    ];
    python(&venv, &test_profile(), &args.map(str::to_owned), steps);
    steps.skip("adapters, slow tests, Julia, examples", "cargo xtask test runs them");
    Ok(())
}

/// A run of the tests.
struct Tests {
    venv: Venv,
    /// Members that cannot be tested without a libpython.
    left_out: Vec<Member>,
    /// Tells cargo the features that this Rust can build.
    features: Vec<String>,
    /// The profile of the wheel that the Python tests use.
    profile: String,
    is_long: bool,
}

impl Tests {
    fn prepare(with: &[Set], steps: &mut Steps) -> Result<Self> {
        let venv = Venv::ready(with)?;
        let mut left_out = Vec::new();
        if let Some(reason) = venv.facts.lacks_library() {
            left_out = workspace::members()?;
            left_out.retain(Member::embeds_python);
            steps.skip("embedded Python", reason);
        }
        let features = features(steps)?;
        Ok(Self { venv, left_out, features, profile: test_profile(), is_long: false })
    }

    /// All but those in Julia.
    fn all(&self, steps: &mut Steps) -> Result<()> {
        let skip: &[&str] = if self.is_long { &[] } else { &LONG };
        let skip = skip.iter().flat_map(|test| ["--skip", test]);
        let args = ["--"].into_iter().chain(skip).map(str::to_owned);
        self.rust(&args.collect::<Vec<_>>(), steps)?;
        // All marks, or all but those of long tests.
        let marks: &[_] = if self.is_long { &["-m", ""] } else { &[] };
        let marks: Vec<_> = marks.iter().map(|word| (*word).to_owned()).collect();
        python(&self.venv, &self.profile, &marks, steps);
        self.examples(steps)?;
        if !self.is_long {
            steps.skip("long tests", "cargo xtask test --long runs them");
        }
        let mut missing = resolve(&[Set::named("full")?])?;
        missing.retain(|set| !self.venv.has(set));
        if !missing.is_empty() {
            let names = missing.iter().map(|set| &set.name[..]).collect::<Vec<_>>().join(",");
            let way = format!("cargo xtask test --with {names} installs them");
            steps.skip("other frameworks", way);
        }
        Ok(())
    }

    fn rust(&self, args: &[String], steps: &mut Steps) -> Result<()> {
        let Self { venv, features, .. } = self;
        let left_out = self.left_out.iter().map(Member::name);
        let packages = ["--workspace"].into_iter().chain(left_out.flat_map(|it| ["--exclude", it]));
        let packages: Vec<_> = packages.filter(|_| !names_package(args)).collect();
        let packages = &packages;
        let members = workspace::members()?;
        let libraries = members.iter().filter(|member| member.has_library()).map(Member::name);
        for (name, chosen, shows) in calls(args, &libraries.collect::<Vec<_>>()) {
            steps.count(name, |tally| {
                let dashes = (shows.is_some() && !args.iter().any(|arg| arg == "--")).then_some("--");
                let mut cargo = cmd!(
                    venv.sh,
                    "cargo test --no-fail-fast {features...} {packages...} {chosen...} {args...} {dashes...} {shows...}"
                );
                if let Some(julia) = julia::here()? {
                    cargo = cargo.env(julia::CHOICE, julia);
                }
                if self.is_long {
                    cargo = cargo.env(IS_LONG, "1");
                }
                tally.run(venv.embedding(cargo))
            });
        }
        Ok(())
    }

    /// The example programs: each one checks itself, so running it is a test.
    fn examples(&self, steps: &mut Steps) -> Result<()> {
        let mut folders = vec!["examples".to_owned(), "python/examples".to_owned()];
        for library in workspace::libraries()? {
            if !self.left_out.iter().any(|member| member.name() == library.name()) {
                folders.push(format!("{}/examples", library.folder()));
            }
        }
        let Self { venv, features, .. } = self;
        let left_out = self.left_out.iter().flat_map(|it| ["--exclude", it.name()]);
        steps.count("examples", |tally| {
            let build = "build --quiet --workspace --examples".split(' ');
            cmd!(venv.sh, "cargo {build...} {left_out...} {features...}").run()?;
            let sources = |folder| files_in(folder, "rs").into_iter().chain(files_in(folder, "py"));
            let mut failed = Vec::new();
            for source in folders.iter().flat_map(sources) {
                match self.example(&source) {
                    Ok(()) => tally.passed += 1,
                    Err(error) => failed.push(format!("{}: {error:#}", source.display())),
                }
            }
            tally.failed = failed.len() as u64;
            ensure!(failed.is_empty(), "{}", failed.join("; "));
            Ok(())
        });
        // A package apart: it links a library that a Python package has.
        steps.count("apache-tvm-ffi example", |tally| {
            let Some(library) = answer(cmd!(venv.sh, "tvm-ffi-config --libdir")) else {
                return skip("apache-tvm-ffi is not installed");
            };
            if *features != ALL_FEATURES || cfg!(windows) {
                return skip("Rust is too old, or the system is Windows");
            }
            let manifest = ["--manifest-path", "examples/tvm-ffi/Cargo.toml"];
            let cargo =
                cmd!(venv.sh, "cargo test --locked {manifest...} --target-dir").arg(target());
            tally.run(cargo.env(LIBRARY_PATH, prepended(Path::new(&library), LIBRARY_PATH)))
        });
        Ok(())
    }

    fn example(&self, source: &Path) -> Result<()> {
        if source.extension().is_some_and(|extension| extension == "py") {
            return Ok(cmd!(self.venv.sh, "python {source}").run()?);
        }
        let name = stem(source) + std::env::consts::EXE_SUFFIX;
        let program = debug_folder().join("examples").join(name);
        self.venv.embedding(cmd!(self.venv.sh, "{program}")).run().context("an example of a crate")
    }
}

fn julia(venv: &Venv, files: &[String], steps: &mut Steps) {
    steps.count("Julia", |tally| tally.run(julia::tests(&julia::find()?, venv, files)?));
}

/// Runs the tests of the PyO3 crate, and checks the Python extensions, with older versions of PyO3: in a copy
/// of the sources, because one lock file has one version.
fn older_pyo3(venv: &Venv, versions: &[&str], args: &[String], steps: &mut Steps) {
    for version in versions {
        steps.count(&format!("PyO3 {version}"), |tally| with_pyo3(version, venv, args, tally));
    }
}

fn with_pyo3(version: &str, venv: &Venv, args: &[String], tally: &mut Tally) -> Result<()> {
    if let Some(reason) = venv.facts.lacks_library() {
        return skip(reason);
    }
    let (sh, targets, copy) = (&venv.sh, others(), target().join("pyo3-source"));
    workspace::copy(sh, &copy)?;
    let _copy = sh.push_dir(&copy);
    cmd!(sh, "cargo update --quiet --package pyo3 --precise {version}").run()?;
    // With the extensions, so that both have one build of PyO3 and of what they depend on.
    let tests = "--package dlbridge-pyo3 --package dlbridge-python --package dlbridge-example-extension \
        --no-fail-fast --lib --tests";
    let tests = tests.split_whitespace();
    let cargo = cmd!(sh, "cargo test --target-dir {targets} {tests...} {args...}");
    // With 0.27, a thread's imports failed while another one still initialised Python.
    let single: &[_] =
        if args.iter().any(|arg| arg == "--") { &[] } else { &["--", "--test-threads=1"] };
    let cargo = cargo.args(single);
    tally.run(venv.embedding(cargo))
}

/// Runs the tests of the operators with other versions of the frameworks, each in an environment of its own.
fn operators(venv: &Venv, args: &[String], steps: &mut Steps) {
    for packages in OPERATORS {
        steps.count(&packages.join(", "), |tally| {
            if let Some(reason) = venv.facts.lacks_library() {
                return skip(reason);
            }
            let (sh, python) = (&venv.sh, venv.python()?);
            let folder = target().join("operators").join(packages.concat().replace('=', "-"));
            cmd!(sh, "{python} -m venv {folder}").run()?;
            let own = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
            cmd!(sh, "{own} -m pip install --quiet --upgrade numpy pytest {packages...}").run()?;
            let places = "import sysconfig; print(sysconfig.get_path('purelib'))";
            let places = cmd!(sh, "{own} -c {places}").read()?;
            let cargo =
                cmd!(sh, "cargo test --package dlbridge-operators --test frameworks {args...}");
            tally.run(venv.embedding(cargo.env("PYTHONPATH", places)))
        });
    }
}

/// Runs the Python tests on a free-threaded Python, where one is found or can be built.
fn free_threaded(args: &[String], steps: &mut Steps) {
    steps.count("free-threaded Python", |tally| {
        let venv = Venv::of("3.14t", "free-threaded").or_else(skip)?;
        pytest_over(&build(&venv, &test_profile())?, &venv, args, tally)
    });
}

/// Runs the Python tests on Python 3.15, with the GIL and without, over the wheels that the first of
/// the two builds.
fn abi3t(args: &[String], steps: &mut Steps) {
    let mut wheels = Vec::new();
    for version in ["3.15", "3.15t"] {
        steps.count(&format!("Python {version}"), |tally| {
            let venv = Venv::of(version, version).or_else(skip)?;
            if wheels.is_empty() {
                wheels = build(&venv, &test_profile())?;
            }
            pytest_over(&wheels, &venv, args, tally)
        });
    }
}

/// Builds the wheels, and runs the Python tests over them.
fn python(venv: &Venv, profile: &str, args: &[String], steps: &mut Steps) {
    steps.count(&format!("pytest, {}", venv.facts), |tally| {
        pytest_over(&build(venv, profile)?, venv, args, tally)
    });
}

fn build(venv: &Venv, profile: &str) -> Result<Vec<PathBuf>> {
    // No user installs the example's wheel.
    let profiles = [profile, &test_profile()];
    MEMBERS.iter().zip(profiles).map(|(it, profile)| venv.build_wheel(it, profile)).collect()
}

/// Installs the wheels, and runs the Python tests: in parallel where no test is chosen.
fn pytest_over(wheels: &[PathBuf], venv: &Venv, args: &[String], tally: &mut Tally) -> Result<()> {
    wheels.iter().try_for_each(|wheel| venv.install_wheel(wheel))?;
    let names_files = args.iter().any(|arg| names_a_file(arg));
    let is_chosen = names_files || args.iter().any(|arg| arg == "-k");
    let parallel: &[_] = if is_chosen { &[] } else { &["-n", WORKERS, "--dist", "loadgroup"] };
    let has_marks = is_chosen || args.iter().any(|arg| arg == "-m");
    let marks: &[_] = if has_marks { &[] } else { &NOT_LONG };
    // The doctor is Python alone: a second run would show nothing new. Its planted faults are not
    // safe on 3.15 yet, where one of them takes all memory.
    let files = if venv.is_bare() { &PYTHON_TESTS[..1] } else { &PYTHON_TESTS };
    let files = if names_files { &[] } else { files };
    let pytest = cmd!(
        venv.sh,
        "python -m pytest -ra {CONFIGURATION...} {parallel...} {marks...} {args...} {files...}"
    );
    tally.is_bare = venv.is_bare();
    // For the processes that tests start: the doctor is not installed.
    tally.run(pytest.env("PYTHONPATH", root().join("extras/doctor")))
}

/// All features, except those whose crates need a newer Rust: they are skipped, and named.
fn features(steps: &mut Steps) -> Result<Vec<String>> {
    let (rust, main_crate) = (workspace::rust_version()?, workspace::main_crate()?);
    let fit = main_crate.features_for(&rust);
    let unfit: Vec<_> = main_crate.features().into_iter().filter(|f| !fit.contains(f)).collect();
    if unfit.is_empty() {
        return Ok(ALL_FEATURES.map(str::to_owned).to_vec());
    }
    steps.skip("all adapters", format!("Rust {rust} is too old for {}", unfit.join(", ")));
    let fit: Vec<_> = fit.iter().map(|feature| format!("dlbridge/{feature}")).collect();
    Ok(vec!["--features".to_owned(), fit.join(",")])
}

/// Whether an argument for pytest names a file or a folder.
fn names_a_file(arg: &str) -> bool {
    !arg.is_empty()
        && !arg.starts_with('-')
        && root().join(arg.split("::").next().unwrap_or(arg)).exists()
}

#[cfg(test)]
mod tests {
    use super::{LONG, cmd, of_the_interpreter};
    use crate::shell::{root, shell, succeeds};

    #[test]
    fn long_tests_exist_and_have_a_reason() {
        let sh = shell();
        for file in of_the_interpreter() {
            assert!(root().join(&file).is_file(), "{file}");
        }
        for test in LONG {
            let name = format!("fn {test}(");
            assert!(succeeds(cmd!(sh, "git grep -qF {name} -- crates extras")), "{test}");
            let page = sh.read_file("CONTRIBUTING.md").unwrap();
            assert!(
                page.contains(&format!("`{test}`")),
                "CONTRIBUTING.md has no reason for {test}"
            );
        }
    }
}
