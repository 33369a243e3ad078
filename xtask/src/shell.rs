//! Where files are in the repository, and how programs are started there.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Cmd, Shell, cmd};

/// The workspace's root: above the manifest that cargo runs, or else above the current folder. It is no constant, because a
/// copy of this program may run in another tree than the one that it was built in.
pub(crate) fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        let starts = manifest.into_iter().chain(std::env::current_dir());
        let mut roots = starts.filter_map(|start| root_above(&start).map(Path::to_owned));
        roots.next().expect("the current folder is in a checkout of the repository")
    })
}

/// The folder at or above another one that has this crate.
fn root_above(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|folder| folder.join("xtask/Cargo.toml").is_file())
}

/// The folders of published libraries: those of the exchange, and their neighbours.
pub(crate) const LIBRARIES: [&str; 2] = ["crates/", "extras/"];

/// A shell in the root, so that commands work from any folder.
pub(crate) fn shell() -> Shell {
    let sh = Shell::new().expect("the current folder exists");
    sh.change_dir(root());
    sh
}

/// Cargo's folder for debug builds: this program is in it, or its tests in `deps` below.
pub(crate) fn debug_folder() -> PathBuf {
    let program = std::env::current_exe().expect("the system knows where this program is");
    let mut folders = program.ancestors().skip(1).filter(|folder| !folder.ends_with("deps"));
    folders.next().expect("a program is in a folder").to_owned()
}

/// The folder for build results, `target` unless cargo was configured otherwise.
pub(crate) fn target() -> PathBuf {
    debug_folder().parent().expect("the debug folder is in the target folder").to_owned()
}

/// Every file that git tracks or would track.
pub(crate) fn files() -> Result<Vec<String>> {
    let sh = shell();
    let listed = cmd!(sh, "git ls-files --cached --others --exclude-standard").quiet().read()?;
    // A file that was just removed may still be listed.
    Ok(listed.lines().filter(|name| root().join(name).is_file()).map(str::to_owned).collect())
}

/// The files of one extension directly in a folder, sorted; none where the folder is missing.
pub(crate) fn files_in(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file() && path.extension().is_some_and(|e| e == extension));
    files.sort();
    files
}

/// A file's name without folder and extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// Whether a program runs and succeeds; its output is not shown.
pub(crate) fn succeeds(cmd: Cmd<'_>) -> bool {
    cmd.quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// What a program prints, if it succeeds; its errors are not shown.
pub(crate) fn answer(cmd: Cmd<'_>) -> Option<String> {
    cmd.quiet().ignore_stderr().read().ok()
}

/// Runs a program and passes each line that it prints to `on_line`, and each line of errors to `on_error`, or to the screen. If it
/// fails, the error has the first lines in which a test runner, or `python benches check`, names what failed: a long log may be cut.
pub(crate) fn each_line(
    cmd: Cmd<'_>,
    mut on_line: impl FnMut(&str),
    on_error: Option<&mut (dyn FnMut(&str) + Send)>,
) -> Result<()> {
    let shown = cmd.to_string();
    eprintln!("$ {shown}");
    let mut command = Command::from(cmd);
    if on_error.is_some() {
        command.stderr(Stdio::piped());
    }
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = started.with_context(|| format!("cannot start `{shown}`"))?;
    let mut failed = Vec::new();
    let (output, errors) = (child.stdout.take().expect("it is piped"), child.stderr.take());
    std::thread::scope(|scope| {
        if let (Some(errors), Some(on_error)) = (errors, on_error) {
            scope.spawn(move || lines(errors, on_error));
        }
        lines(output, &mut |line| {
            if failed.len() < 10 && (line.starts_with("FAILED ") || line.ends_with(" FAILED")) {
                failed.push(line.to_owned());
            }
            on_line(line);
        })
    })?;
    let status = child.wait()?;
    ensure!(status.success(), "`{shown}` failed ({status}) {}", failed.join("; "));
    Ok(())
}

/// Passes each line of an output on, as far as it can be read.
fn lines(output: impl Read, on_line: &mut dyn FnMut(&str)) -> Result<()> {
    for line in BufReader::new(output).split(b'\n') {
        on_line(String::from_utf8_lossy(&line?).trim_end_matches('\r'));
    }
    Ok(())
}

/// Why there is no valgrind, if there is none.
pub(crate) fn lacks_valgrind(sh: &Shell) -> Option<&'static str> {
    let missing = !succeeds(cmd!(sh, "valgrind --version"));
    missing.then_some("no valgrind: install your system's package")
}

/// Prints the findings, and fails if there are any.
pub(crate) fn report(findings: &[String]) -> Result<()> {
    for finding in findings {
        println!("{finding}");
    }
    if findings.is_empty() { Ok(()) } else { bail!("{} findings", findings.len()) }
}

/// The number of the line that a place in a text is in.
pub(crate) fn line_of(text: &str, place: usize) -> usize {
    1 + text[..place].matches('\n').count()
}

#[cfg(all(test, unix))]
mod tests {
    use xshell::{Shell, cmd};

    use super::{each_line, root, root_above};

    #[test]
    fn a_copied_program_checks_the_tree_that_it_runs_in() {
        let sh = Shell::new().unwrap();
        let tree = sh.create_temp_dir().unwrap();
        let below = sh.create_dir(tree.path().join("crates/one/src")).unwrap();
        assert_eq!(root_above(&below), None);
        sh.write_file(tree.path().join("xtask/Cargo.toml"), "").unwrap();
        assert_eq!(root_above(&below), Some(tree.path()));
        assert_eq!(Some(root()), root_above(&std::env::current_dir().unwrap()));
    }

    #[test]
    fn an_error_has_the_lines_that_name_what_failed() {
        let script = "echo one; echo FAILED a.py::b; echo 'test c ... FAILED'; exit 3";
        let mut lines = Vec::new();
        let sh = Shell::new().unwrap();
        let done = each_line(cmd!(sh, "sh -c {script}"), |line| lines.push(line.to_owned()), None);
        assert_eq!(lines, ["one", "FAILED a.py::b", "test c ... FAILED"]);
        let error = done.unwrap_err().to_string();
        assert!(error.ends_with("FAILED a.py::b; test c ... FAILED"), "{error}");
    }
}
