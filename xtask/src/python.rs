//! Python: finding one, virtual environments, the sets of packages in `requirements.txt`, wheels.
//! A set's stamp holds the text that was installed, and is written last.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use xshell::{Cmd, Shell, cmd};

use crate::shell::{answer, files_in, root, shell, target};
use crate::workspace;

/// The oldest Python that the wheel supports.
const OLDEST: (u64, u64) = (3, 11);
/// Names the Python for `.venv`; no other is tried then.
pub(crate) const CHOICE: &str = "DLBRIDGE_PYTHON";
/// Otherwise, the first that is usable.
const NAMES: &str = "python3 python3.15 python3.14 python3.13 python3.12 python3.11 python";
/// Prints the version, whether the build is free-threaded, where Python and its library are installed,
/// and whether virtual environments can be made.
const QUESTIONS: &str = "\
import importlib.util, json, sys, sysconfig
ask = sysconfig.get_config_var
library = [ask('LIBDIR') or '', ask('LDLIBRARY') or '']
venv = all(map(importlib.util.find_spec, ('venv', 'ensurepip')))
version = sys.version_info[:2]
print(json.dumps([*version, bool(ask('Py_GIL_DISABLED')), sys.base_prefix, *library, venv]))
";
/// Where the system's loader also looks for libraries.
pub(crate) const LIBRARY_PATH: &str =
    if cfg!(target_os = "macos") { "DYLD_FALLBACK_LIBRARY_PATH" } else { "LD_LIBRARY_PATH" };
/// The time of all files in a wheel, 2000-01-01: the same sources give the same bytes.
const FILE_TIME: &str = "946684800";

/// What a Python says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    version: (u64, u64),
    pub(crate) free_threaded: bool,
    /// The folder of the installation, the same for its virtual environments.
    installation: String,
    library: PathBuf,
    makes_venvs: bool,
}

impl Facts {
    fn ask(program: &Path) -> Option<Self> {
        let sh = shell();
        let answers = answer(cmd!(sh, "{program} -c {QUESTIONS}"))?;
        let it: Value = serde_json::from_str(&answers).ok()?;
        Some(Self {
            version: (it[0].as_u64()?, it[1].as_u64()?),
            free_threaded: it[2].as_bool()?,
            installation: it[3].as_str()?.to_owned(),
            library: Path::new(it[4].as_str()?).join(it[5].as_str()?),
            makes_venvs: it[6].as_bool()?,
        })
    }

    /// Why programs cannot be linked with this Python's library, if they cannot.
    pub(crate) fn lacks_library(&self) -> Option<String> {
        let is_there = self.library.is_file() && self.library.extension().is_none_or(|e| e != "a");
        (!cfg!(windows) && !is_there).then(|| {
            format!(
                "this Python has no shared library to link with ({}): install its development \
                 package (Debian and Ubuntu: python3-dev), or name another Python in {CHOICE}",
                self.library.display(),
            )
        })
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.free_threaded { ", free-threaded" } else { "" };
        write!(f, "Python {}.{}{kind}", self.version.0, self.version.1)
    }
}

/// A Python that can make virtual environments.
type Usable = (PathBuf, Facts);

/// A Python that can make virtual environments, or the reason why a program is none.
fn usable(program: impl Into<PathBuf>) -> Result<Usable> {
    let program = program.into();
    let shown = program.display();
    let facts = Facts::ask(&program).with_context(|| format!("{shown} does not run"))?;
    ensure!(facts.version >= OLDEST, "{shown} is {facts}, which is too old");
    ensure!(facts.makes_venvs, "{shown} is {facts} without the module venv");
    Ok((program, facts))
}

/// The first usable Python on the search path.
fn find() -> Result<Usable> {
    let mut problems = String::new();
    for name in NAMES.split(' ') {
        match usable(name) {
            Ok(found) => return Ok(found),
            Err(problem) => problems += &format!("\n  {problem:#}"),
        }
    }
    bail!(
        "no usable Python found:{problems}\nInstall Python {}.{} or newer with its module venv \
         (Debian and Ubuntu: the package python3-venv), or name one in {CHOICE}.",
        OLDEST.0,
        OLDEST.1
    )
}

/// The file of all pins, each of which binds what any set installs.
pub(crate) const PINS: &str = "requirements.txt";

/// One part of `requirements.txt`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl Set {
    /// Reads a set; the error lists all sets. For the command line.
    pub(crate) fn load(name: &str) -> Result<Self, String> {
        let mut sets = Self::all().map_err(|error| error.to_string())?;
        if let Some(at) = sets.iter().position(|set| set.name == name) {
            return Ok(sets.swap_remove(at));
        }
        let names: Vec<_> = sets.iter().map(|set| &set.name[..]).collect();
        Err(format!("expected one of {}", names.join(", ")))
    }

    /// All sets. What stands before the first one is the file's own comment.
    pub(crate) fn all() -> std::io::Result<Vec<Self>> {
        let text = std::fs::read_to_string(root().join(PINS))?.replace("\r\n", "\n");
        let parts = text.split("\n\n").skip(1);
        let named =
            parts.filter_map(|part| Some((part.strip_prefix("# ")?.split_once(':')?.0, part)));
        Ok(named
            .map(|(name, part)| Self { name: name.to_owned(), text: format!("{}\n", part.trim()) })
            .collect())
    }

    /// The pins, as pip takes them.
    pub(crate) fn pins(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter(|line| !line.starts_with('#'))
    }

    /// The same, for a name in the sources.
    pub(crate) fn named(name: &str) -> Result<Self> {
        Self::load(name).map_err(|problem| anyhow!("{PINS}: {name}: {problem}"))
    }

    /// The sets that this one only lists; empty for a set with packages of its own.
    fn members(&self) -> impl Iterator<Item = &str> {
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("# = "))
            .flat_map(str::split_whitespace)
    }
}

/// The sets, with groups replaced by their members, each once.
pub(crate) fn resolve(sets: &[Set]) -> Result<Vec<Set>> {
    let mut resolved: Vec<Set> = Vec::new();
    for set in sets {
        let members = set.members().map(Set::named).collect::<Result<Vec<_>>>()?;
        let members = if members.is_empty() { vec![set.clone()] } else { resolve(&members)? };
        for member in members {
            if !resolved.contains(&member) {
                resolved.push(member);
            }
        }
    }
    Ok(resolved)
}

/// Where cargo builds for other Pythons than that of `.venv`, and for other versions of PyO3.
pub(crate) fn others() -> PathBuf {
    target().join("other-pythons")
}

/// The profile of wheels as users get them.
pub(crate) const RELEASE: &str = "wheel";

/// The profile of wheels for tests, which build in a few seconds.
pub(crate) fn test_profile() -> String {
    env::var("DLBRIDGE_WHEEL_PROFILE").unwrap_or_else(|_| "dev".to_owned())
}

/// A virtual environment that runs, `.venv` most of all.
pub(crate) struct Venv {
    folder: PathBuf,
    pub(crate) facts: Facts,
    /// Where cargo builds for it.
    pub(crate) target: PathBuf,
    /// Its programs find this environment's Python, whichever way they look for one. All cargo
    /// commands that build PyO3 use this shell: other variables would build it anew.
    pub(crate) sh: Shell,
}

impl Venv {
    /// The project's environment with the base set and all of the given ones; made anew when it
    /// does not run or is not of the chosen Python.
    pub(crate) fn ready(with: &[Set]) -> Result<Self> {
        let chosen = env::var_os(CHOICE).filter(|value| !value.is_empty());
        let chosen = chosen.map(|program| usable(program).context(CHOICE)).transpose()?;
        let venv = Self::open(root().join(".venv"), target(), chosen, find)?;
        let sets = resolve(&[&[Set::named("base")?], with].concat())?;
        sets.iter().try_for_each(|set| venv.install(set).with_context(|| set.name.clone()))?;
        Ok(venv)
    }

    /// An environment of another Python with the base set. All others share build results: only what
    /// depends on PyO3 is built anew when the Python changes.
    pub(crate) fn apart(name: &str, program: &Path) -> Result<Self> {
        let python = usable(program)?;
        let venv = Self::open(target().join(name).join("venv"), others(), Some(python), find)?;
        venv.install(&Set::named("base")?)?;
        Ok(venv)
    }

    /// An environment of a version that is on the search path, or else unpacked or built in a folder of `target`.
    pub(crate) fn of(version: &str, folder: &str) -> Result<Self> {
        if let Ok((program, _)) = usable(format!("python{version}")) {
            return Self::apart(folder, &program);
        }
        let (sh, prefix) = (shell(), target().join(folder).join("python"));
        cmd!(sh, "sh scripts/get-python.sh {version} {prefix}").run()?;
        Self::apart(folder, &prefix.join("bin/python3"))
    }

    /// Whether it has only the base set: frameworks have no release for its Python.
    pub(crate) fn is_bare(&self) -> bool {
        let is_new = self.facts.version >= (3, 15);
        is_new || self.facts.free_threaded || self.target != target()
    }

    fn open(
        folder: PathBuf,
        target_folder: PathBuf,
        chosen: Option<Usable>,
        find: impl FnOnce() -> Result<Usable>,
    ) -> Result<Self> {
        let programs = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
        let python = programs.join(if cfg!(windows) { "python.exe" } else { "python" });
        let sh = shell();
        let facts = match (Facts::ask(&python), chosen) {
            (Some(facts), None) => facts,
            (Some(facts), Some((_, wanted))) if facts == wanted => facts,
            (_, chosen) => {
                let (program, facts) = chosen.map_or_else(find, Ok)?;
                println!("creating {} with {facts}", folder.display());
                cmd!(sh, "{program} -m venv --clear {folder}").run()?;
                facts
            }
        };
        sh.set_var("VIRTUAL_ENV", &folder);
        sh.set_var("PYTHONHOME", "");
        sh.set_var("PATH", prepended(&programs, "PATH"));
        sh.set_var("PYO3_PYTHON", &python);
        // The same path may become another Python; PyO3 builds anew when this changes.
        sh.set_var("PYO3_ENVIRONMENT_SIGNATURE", format!("{facts} {}", facts.installation));
        sh.set_var(CHOICE, &python);
        if target_folder != target() {
            sh.set_var("CARGO_TARGET_DIR", &target_folder);
        }
        Ok(Self { folder, facts, target: target_folder, sh })
    }

    /// The environment's Python, for programs that start it.
    pub(crate) fn python(&self) -> Result<PathBuf> {
        Ok(self.sh.var(CHOICE)?.into())
    }

    /// Lets a program that embeds Python find its library.
    pub(crate) fn embedding<'a>(&self, cmd: Cmd<'a>) -> Cmd<'a> {
        let folder = self.facts.library.parent().filter(|_| self.facts.lacks_library().is_none());
        match folder.filter(|_| !cfg!(windows)) {
            Some(folder) => cmd.env(LIBRARY_PATH, prepended(folder, LIBRARY_PATH)),
            None => cmd,
        }
    }

    fn stamp(&self, set: &Set) -> PathBuf {
        self.folder.join(format!("xtask/{}.txt", set.name))
    }

    /// Whether a set is installed as the file now says.
    pub(crate) fn has(&self, set: &Set) -> bool {
        std::fs::read_to_string(self.stamp(set)).is_ok_and(|text| text == set.text)
    }

    /// Installs a set unless it is installed already.
    pub(crate) fn install(&self, set: &Set) -> Result<()> {
        if self.has(set) {
            return Ok(());
        }
        println!("\ninstalling {}", set.name);
        // Others are large, so that pip shows how far it is.
        let quiet = (set.name == "base").then_some("--quiet");
        self.pip().args(quiet).args(set.pins()).args(["-c", PINS]).quiet().run()?;
        Ok(self.sh.write_file(self.stamp(set), &set.text)?)
    }

    fn pip(&self) -> Cmd<'_> {
        cmd!(self.sh, "python -m pip install --no-input --disable-pip-version-check")
    }

    /// Builds the wheel of a member, and installs it.
    pub(crate) fn install_member(&self, member: &str, profile: &str) -> Result<()> {
        self.install_wheel(&self.build_wheel(member, profile)?)
    }

    /// Builds the wheel of a member.
    pub(crate) fn build_wheel(&self, member: &str, profile: &str) -> Result<PathBuf> {
        let folder = self.target.join("wheels").join(member);
        // An older wheel may have another name.
        self.sh.remove_path(&folder)?;
        // The example has functions for a GPU where this Rust builds cudarc, which needs no CUDA.
        let fit = workspace::main_crate()?.features_for(&workspace::rust_version()?);
        let has_cuda =
            member.starts_with("examples/") && fit.iter().any(|name| name == "cudarc-0_19");
        // The tests call functions that no user's wheel has. With a feature of its own, PyO3 is not built anew
        // each time that its tests follow a wheel: maturin sets other variables.
        let features = match member {
            "python" => "testing,pyo3/extension-module",
            _ if has_cuda => "cuda,pyo3/extension-module",
            _ => "pyo3/extension-module",
        };
        let python = self.python()?;
        println!("building the wheel of {member}, profile {profile}");
        cmd!(
            self.sh,
            "python -m maturin build --quiet --profile {profile} --auditwheel skip --features {features}
             --manifest-path {member}/Cargo.toml --interpreter {python} --out {folder}"
        )
        .env("SOURCE_DATE_EPOCH", FILE_TIME)
        .quiet()
        .run()?;
        let mut wheels = files_in(&folder, "whl");
        ensure!(wheels.len() == 1, "maturin built {} wheels, expected 1", wheels.len());
        Ok(wheels.remove(0))
    }

    /// Installs a wheel without its dependencies.
    pub(crate) fn install_wheel(&self, wheel: &Path) -> Result<()> {
        Ok(self
            .pip()
            .args(["--quiet", "--force-reinstall", "--no-deps"])
            .arg(wheel)
            .quiet()
            .run()?)
    }
}

/// A search path with one more folder at its head.
pub(crate) fn prepended(folder: &Path, variable: &str) -> OsString {
    let old = env::var_os(variable).unwrap_or_default();
    let old_folders = env::split_paths(&old).filter(|path| !path.as_os_str().is_empty());
    env::join_paths([folder.to_owned()].into_iter().chain(old_folders)).unwrap_or(old.clone())
}

#[cfg(test)]
mod tests {
    use super::{Facts, Set, Venv, resolve, shell};

    #[test]
    fn a_set_has_pins_or_names_sets_that_have() {
        let sets = Set::all().unwrap();
        assert!(sets.iter().any(|set| set.pins().next().is_none()), "none names others");
        for set in resolve(&sets).unwrap() {
            assert!(set.pins().count() > 0, "{}", set.name);
            // An extra is not allowed in constraints, which the file is.
            assert!(set.pins().all(|pin| pin.contains("==") && !pin.contains('[')), "{}", set.name);
        }
    }

    #[test]
    fn a_changed_set_is_not_installed() {
        let folder = std::env::temp_dir().join(format!("xtask-stamp-{}", std::process::id()));
        let (facts, target, sh) = (Facts::default(), folder.clone(), shell());
        let venv = Venv { folder: folder.clone(), facts, target, sh };
        let [old, new] = ["numpy==1", "numpy==2"]
            .map(|text| Set { name: "some".to_owned(), text: text.to_owned() });
        assert!(!venv.has(&old));
        venv.sh.write_file(venv.stamp(&old), &old.text).unwrap();
        assert!(venv.has(&old) && !venv.has(&new));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
