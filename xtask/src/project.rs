//! Where things lie in the repository.
//! Invariant: every path starts at the workspace's root, so commands work from any folder.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command;
use crate::failure::{Failure, Result};

/// The workspace's root: the parent of this crate.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is a member of a workspace")
}

/// A path inside the repository.
pub(crate) fn path(relative: &str) -> PathBuf {
    root().join(relative)
}

/// The folder that cargo builds debug artifacts in: this program lies there.
pub(crate) fn debug_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("where this program lies is unknown: {error}")))?;
    Ok(program.parent().expect("a program lies in a folder").to_owned())
}

/// The folder for everything that is built, `target` unless cargo was told another.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let debug = debug_folder()?;
    Ok(debug.parent().expect("the debug folder lies in the target folder").to_owned())
}

/// Reads a text file; the error names it.
pub(crate) fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
}

/// Writes a file and the folders above it; the error names it.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, contents))
        .map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(folder: &Path) -> Result {
    fs::create_dir_all(folder)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", folder.display())))
}

/// Every file that git tracks or would track.
pub(crate) fn files() -> Result<Vec<String>> {
    let words = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = command::output(command::program("git").args(words))?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// The files of one extension directly in a folder, sorted; none where there is no folder.
pub(crate) fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file() && path.extension().is_some_and(|e| e == extension))
        .collect();
    files.sort();
    files
}

/// A file's name without folder and extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
