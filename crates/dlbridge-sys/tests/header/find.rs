//! Finds the DLPack headers that installed Python packages ship.
//! Reading or compiling a header does not belong here.
//! Invariant: a Python that was asked for by name must run; only a default one may be missing.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where packages keep a copy of the header, relative to site-packages.
const PLACES: &[&str] = &[
    "torch/include/ATen/dlpack.h",
    "tvm_ffi/include/dlpack/dlpack.h",
    "tvm_ffi/3rdparty/dlpack/include/dlpack/dlpack.h",
    "pyarrow/include/arrow/c/dlpack_abi.h",
    "tensorflow/include/external/dlpack/include/dlpack/dlpack.h",
    "cupy/_core/include/cupy/_dlpack/dlpack.h",
    "cuda/core/_include/dlpack.h",
];

/// Prints, of the places given as arguments, those that exist, each beside the file's full path.
const SCRIPT: &str = r#"
import os, sys, sysconfig
paths = sysconfig.get_paths()
roots = [paths["purelib"], paths["platlib"]] + [p for p in sys.path if p]
for place in sys.argv[1:]:
    for root in dict.fromkeys(map(os.path.realpath, roots)):
        path = os.path.join(root, place)
        if os.path.isfile(path):
            print(place, path, sep="\t")
"#;

/// One installed header.
pub(crate) struct Installed {
    /// The place in site-packages, for messages.
    pub(crate) place: String,
    /// The file.
    pub(crate) path: PathBuf,
}

/// Every header in a known place, or why there is none.
pub(crate) fn installed() -> Result<Vec<Installed>, String> {
    let (python, by_name) = python();
    let run = Command::new(&python).arg("-c").arg(SCRIPT).args(PLACES).output();
    let output = match run {
        Ok(output) if output.status.success() => output,
        failed if by_name => panic!("DLBRIDGE_PYTHON does not run: {failed:?}"),
        failed => return Err(format!("{} does not run: {failed:?}", python.display())),
    };
    let stdout = String::from_utf8(output.stdout).expect("Python prints UTF-8 paths");
    let found: Vec<_> = stdout
        .lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(place, path)| Installed { place: place.to_owned(), path: PathBuf::from(path) })
        .collect();
    if found.is_empty() {
        return Err(format!("no package of {} ships a dlpack.h", python.display()));
    }
    Ok(found)
}

/// The interpreter to ask, and whether the caller chose it.
fn python() -> (PathBuf, bool) {
    if let Some(chosen) = env::var_os("DLBRIDGE_PYTHON") {
        return (PathBuf::from(chosen), true);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let in_venv = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let venv = root.join(".venv").join(in_venv);
    let python = if venv.exists() { venv } else { PathBuf::from("python3") };
    (python, false)
}
