//! Python packages: built as users get them and put into the environment.
//! Invariant: the same sources give the same bytes, so an unchanged wheel is not installed again.

use std::{env, fs};

use crate::failure::{Failure, Result};
use crate::venv::Venv;
use crate::{command, manifest, project, rustup};

/// Chooses the profile of wheels that tests install: `wheel`, as users get them, or `dev`, which builds
/// in a few seconds.
const PROFILE: &str = "DLBRIDGE_WHEEL_PROFILE";

/// The time of all files in the wheel, 2000-01-01: as good as any, if it is always the same.
const FILE_TIME: &str = "946684800";
/// The feature of the main crate that the example's `cuda` turns on.
const CUDARC: &str = "cudarc-0_19";

/// The example has functions for a GPU where this Rust builds cudarc, which needs no CUDA to build.
fn features(member: &str) -> Result<&'static [&'static str]> {
    let fit = manifest::features_for_rust(&rustup::current()?)?;
    let has_cuda = member == manifest::EXAMPLE_WHEEL && fit.iter().any(|name| name == CUDARC);
    Ok(if has_cuda { &["--features", "cuda"] } else { &[] })
}

/// Builds the wheel of the member in a folder and installs it.
pub(crate) fn build_and_install(venv: &Venv, member: &str) -> Result {
    let folder = venv.target_folder()?.join("wheels").join(member);
    // An older wheel may have another name; the folder holds this build's only.
    let _ = fs::remove_dir_all(&folder);
    let mut maturin = venv.run_python();
    let profile = env::var(PROFILE).unwrap_or_else(|_| "wheel".to_owned());
    maturin
        .args(["-m", "maturin", "build", "--profile", &profile, "--auditwheel", "skip"])
        .args(features(member)?)
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
