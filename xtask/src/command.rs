//! Starting other programs: shown to the user, and named in the error when they fail.
//! Which programs, and with what arguments, does not belong here.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::{Failure, Result};
use crate::project;

/// How often a program is asked whether it is done.
const PAUSE: Duration = Duration::from_millis(50);

/// A program that starts in the workspace's root.
pub(crate) fn program(name: impl AsRef<Path>) -> Command {
    let mut command = Command::new(name.as_ref());
    command.current_dir(project::root());
    command
}

/// Runs a program with its output on the screen.
pub(crate) fn run(command: &mut Command) -> Result {
    show(command);
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    check(command, status)
}

/// How a program ended that had only so much time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was done.
    ByItself,
    /// Its time was up, and it was stopped with all that it had started.
    Stopped,
}

/// Runs a program with its output on the screen, for no longer than a time.
pub(crate) fn run_for(command: &mut Command, limit: Duration) -> Result<Ended> {
    show(command);
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(command, 0);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| cannot_start(command, &error))?;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return check(command, status).map(|()| Ended::ByItself),
            Ok(None) if started.elapsed() < limit => thread::sleep(PAUSE),
            Ok(None) => break,
            Err(error) => return Err(cannot_start(command, &error)),
        }
    }
    // What it started itself is of its group.
    let group = format!("-{}", child.id());
    if !cfg!(unix) || !succeeds(program("kill").args(["-KILL", "--", &group])) {
        let _ = child.kill();
    }
    let _ = child.wait();
    Ok(Ended::Stopped)
}

/// Runs a program with its output on the screen, and hands every line of its standard output on.
/// The inner result tells whether the program succeeded.
pub(crate) fn watch(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<Result> {
    show(command);
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| cannot_start(command, &error))?;
    let output = BufReader::new(child.stdout.take().expect("standard output is piped"));
    let mut screen = io::stdout().lock();
    for line in output.split(b'\n').map_while(io::Result::ok) {
        let line = String::from_utf8_lossy(&line);
        // Whoever closed our output wants no more lines, but the program still ends by itself.
        let _ = writeln!(screen, "{line}");
        on_line(&line);
    }
    let status = child.wait().map_err(|error| cannot_start(command, &error))?;
    Ok(check(command, status))
}

/// Runs a program whose complaints are handed on line by line, for the caller to show; the rest of
/// its output is on the screen. The inner result tells whether the program succeeded.
pub(crate) fn watch_errors(command: &mut Command, mut on_line: impl FnMut(&str)) -> Result<Result> {
    show(command);
    let started = command.stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| cannot_start(command, &error))?;
    let errors = BufReader::new(child.stderr.take().expect("standard error is piped"));
    for line in errors.split(b'\n').map_while(io::Result::ok) {
        on_line(&String::from_utf8_lossy(&line));
    }
    let status = child.wait().map_err(|error| cannot_start(command, &error))?;
    Ok(check(command, status))
}

/// Runs a program unseen and gives its standard output; the error holds what it complained of.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|error| cannot_start(command, &error))?;
    check(command, output.status).map_err(|failure| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        Failure::new(format!("{}\n{}", failure.message(), complaint.trim_end()))
    })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether a program runs and succeeds; nothing of it is seen.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn show(command: &Command) {
    println!("$ {}", line(command));
}

fn check(command: &Command, status: ExitStatus) -> Result {
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("`{}` failed ({status})", line(command))))
}

fn cannot_start(command: &Command, error: &io::Error) -> Failure {
    let name = Path::new(command.get_program()).display();
    Failure::new(format!("`{name}` does not start: {error}"))
}

/// The command as a user would type it in the root, long texts shortened.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let root = format!("{}/", project::root().display());
    words
        .map(|word| word.to_string_lossy().replace(&root, ""))
        .map(|word| if word.contains('\n') { "...".to_owned() } else { word })
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Ended, line, output, program, run_for};
    use crate::project;

    #[test]
    #[cfg(unix)]
    fn a_program_is_stopped_with_what_it_started() {
        let mut quick = program("true");
        assert_eq!(run_for(&mut quick, Duration::from_secs(60)).unwrap(), Ended::ByItself);
        assert!(run_for(&mut program("false"), Duration::from_secs(60)).is_err());
        let mut slow = program("sh");
        slow.args(["-c", "sleep 600 & wait"]);
        let ended = run_for(&mut slow, Duration::from_millis(200)).unwrap();
        assert_eq!(ended, Ended::Stopped);
    }

    #[test]
    fn shown_paths_start_at_the_root() {
        let mut command = program(project::path(".venv/bin/python"));
        command.args(["-c", "import os\nos"]);
        assert_eq!(line(&command), ".venv/bin/python -c ...");
    }

    #[test]
    fn a_missing_program_is_named() {
        let failure = output(&mut program("no-such-program")).unwrap_err();
        assert!(failure.message().starts_with("`no-such-program` does not start"));
    }
}
