//! The Julia package: finding a Julia, and running programs of the package with it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xshell::{Cmd, cmd};

use crate::capi;
use crate::python::Venv;
use crate::shell::{answer, root, shell, target};
use crate::steps::skip;

const PACKAGE: &str = "julia/DLBridge";
/// Names the Julia to use; no other is tried then.
pub(crate) const CHOICE: &str = "DLBRIDGE_JULIA";
/// Where an unpacked Julia has its program.
const PROGRAM: &str = "bin/julia";
/// The oldest Julia that the package supports.
const OLDEST: (u32, u32) = (1, 5);

/// The Julia that the user chose, the `julia` on the search path if it is new enough, else one that
/// is unpacked here.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(julia) = here()? {
        return Ok(julia);
    }
    let (sh, folder) = (shell(), unpacked());
    let done = cmd!(sh, "sh scripts/get-julia.sh {folder}").run();
    done.or_else(|error| skip(format!("no julia, and none could be unpacked: {error}")))?;
    Ok(folder.join(PROGRAM))
}

/// The same, unless it would have to be unpacked.
pub(crate) fn here() -> Result<Option<PathBuf>> {
    let chosen = env::var_os(CHOICE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let program = chosen.clone().unwrap_or_else(|| "julia".into());
    let sh = shell();
    let version = answer(cmd!(sh, "{program} --version")).unwrap_or_default();
    // Such as `julia version 1.5.3`.
    let mut numbers = version.split([' ', '.']).filter_map(|word| word.parse::<u32>().ok());
    if numbers.next().zip(numbers.next()).is_some_and(|version| version >= OLDEST) {
        return Ok(Some(program));
    }
    if let Some(program) = chosen {
        bail!("{CHOICE}={} is no Julia {}.{} or newer", program.display(), OLDEST.0, OLDEST.1);
    }
    // The script removes the folder `apt` when it is done.
    let is_ready = |program: &PathBuf| program.is_file() && !unpacked().join("apt").exists();
    Ok(Some(unpacked().join(PROGRAM)).filter(is_ready))
}

fn unpacked() -> PathBuf {
    target().join("julia")
}

/// Runs the package's tests, or those of some files.
pub(crate) fn tests<'a>(julia: &Path, venv: &'a Venv, files: &[String]) -> Result<Cmd<'a>> {
    let script = "using Pkg; Pkg.test(test_args = ARGS)";
    Ok(program(julia, venv)?.args(["-e", script]).args(files))
}

/// The package's measurements.
pub(crate) fn bench<'a>(julia: &Path, venv: &'a Venv) -> Result<Cmd<'a>> {
    Ok(program(julia, venv)?.arg(format!("{PACKAGE}/bench/bench.jl")))
}

/// A Julia that sees the package, the library and the environment's Python.
fn program<'a>(julia: &Path, venv: &'a Venv) -> Result<Cmd<'a>> {
    let (library, project) = (capi::build()?, root().join(PACKAGE));
    Ok(cmd!(venv.sh, "{julia} --startup-file=no --project={project}")
        .env("DLBRIDGE_LIBRARY", library)
        // The collector runs on a second thread.
        .env("JULIA_NUM_THREADS", "2")
        // The package needs nothing that is not part of Julia.
        .env("JULIA_PKG_OFFLINE", "true"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `test rust` and `test julia` run beside each other, and both prepare the same Julia.
    #[test]
    fn of_two_scripts_that_prepare_a_prefix_the_second_waits() {
        let sh = shell();
        let folder = sh.create_temp_dir().unwrap();
        let prefix = folder.path().join("prefix");
        let prepare = "name=test; . scripts/debian.sh; prepare \"$0\"";
        let first =
            format!("{prepare}; echo \"$$\" >\"$0/begun\"; sleep 1; echo yes >\"$0/complete\"");
        let second = format!(
            "until [ -e \"$0/begun\" ]; do sleep 0.01; done; {prepare}; cat \"$0/complete\""
        );
        let both = format!("(sh -c '{first}' {0} &) ; sh -c '{second}' {0}", prefix.display());
        assert_eq!(cmd!(sh, "sh -c {both}").read().unwrap(), "yes");
    }
}
