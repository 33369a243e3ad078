//! Python packages: built as users get them and put into the environment.
//! Invariant: the same sources give the same bytes, so an unchanged wheel is not installed again.

use std::fs;

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::venv::Venv;

/// The time of all files in the wheel, 2000-01-01: as good as any, if it is always the same.
const FILE_TIME: &str = "946684800";

/// Builds the wheel of the member in a folder and installs it.
pub(crate) fn build_and_install(venv: &Venv, member: &str) -> Result {
    let folder = venv.target_folder()?.join("wheels").join(member);
    // An older wheel may have another name; the folder holds this build's only.
    let _ = fs::remove_dir_all(&folder);
    let mut maturin = venv.run_python();
    maturin
        .args(["-m", "maturin", "build", "--profile", "wheel", "--auditwheel", "skip"])
        .args(["--manifest-path", &format!("{member}/Cargo.toml"), "--interpreter"])
        .arg(venv.python())
        .arg("--out")
        .arg(&folder)
        .env("SOURCE_DATE_EPOCH", FILE_TIME);
    command::run(&mut maturin)?;
    match &project::files_in(&folder, "whl")[..] {
        [wheel] => venv.install_wheel(wheel),
        wheels => Err(Failure::new(format!("maturin built {} wheels, wanted one", wheels.len()))),
    }
}
