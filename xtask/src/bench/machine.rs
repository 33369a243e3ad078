//! The machine and the tools that numbers come from.
//! The numbers do not belong here.

use std::thread;

use crate::command;
use crate::failure::{Failure, Result};
use crate::project;
use crate::venv::Venv;

/// A line each: the day, the machine, the compilers, Python.
pub(crate) fn describe(venv: &Venv) -> Vec<String> {
    let tools = [
        first_line("rustc", "--version"),
        first_line("cc", "--version"),
        first_line("valgrind", "--version"),
        command::output(venv.run_python().arg("--version")).ok(),
    ];
    let tools: Vec<_> = tools.iter().flatten().map(|line| line.trim()).collect();
    let day = first_line("date", "+%F").unwrap_or_default();
    vec![day, format!("{}, {}", processor(), cores()), tools.join("; ")]
}

/// The same without Python.
pub(crate) fn describe_rust() -> Vec<String> {
    let tools = [first_line("rustc", "--version"), first_line("valgrind", "--version")];
    let day = first_line("date", "+%F").unwrap_or_default();
    let tools: Vec<_> = tools.into_iter().flatten().collect();
    vec![day, format!("{}, {}", processor(), cores()), tools.join("; ")]
}

/// How many threads run at a time.
pub(crate) fn cores() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") }
}

/// Why instructions cannot be counted here, if they cannot.
pub(crate) fn lacks_valgrind() -> Option<&'static str> {
    let missing = first_line("valgrind", "--version").is_none();
    missing.then_some("no valgrind: install your system's package")
}

/// What is built here by hand needs a Unix compiler and valgrind, so only Linux is served.
///
/// # Errors
///
/// On another system.
pub(crate) fn check_system() -> Result {
    if cfg!(target_os = "linux") {
        return Ok(());
    }
    Err(Failure::new("the benchmarks in Python are built and counted on Linux only"))
}

/// The first line that a program prints.
fn first_line(program: &str, argument: &str) -> Option<String> {
    let text = command::output(command::program(program).arg(argument)).ok()?;
    Some(text.lines().next()?.to_owned())
}

fn processor() -> String {
    let text = project::read("/proc/cpuinfo".as_ref()).unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.to_owned())
}
