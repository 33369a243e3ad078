//! Sizes and threads in Python: their scripts are run, their lines become a section each.
//! Building what they load does not belong here.

use std::process::Command;

use super::Tools;
use crate::bench::build::SOURCES;
use crate::bench::report::{self, Section};
use crate::bench::{machine, sizes, threads};
use crate::command;
use crate::failure::Result;
use crate::project;

/// Prints whether Python runs without its lock.
const IS_FREE: &str = "import sys; print(not getattr(sys, '_is_gil_enabled', lambda: True)())";

/// Shares and copies of arrays, from small to large.
pub(super) fn sizes(tools: &Tools<'_>) -> Result {
    let lines = command::output(&mut script(tools, "sizes.py"))?;
    keep(tools, &sizes::section("Python", &lines)?)
}

/// Exchanges per second, on more and more threads.
pub(super) fn threads(tools: &Tools<'_>) -> Result {
    let names: Vec<_> = tools.libraries.iter().map(|library| library.module).collect();
    let mut threads_script = script(tools, "threads.py");
    let lines = command::output(threads_script.args(["--libraries", &names.join(",")]))?;
    let is_free = command::output(tools.workshop.venv().run_python().args(["-c", IS_FREE]))?;
    let language = if is_free.trim() == "True" { "Free-threaded Python" } else { "Python" };
    keep(tools, &threads::section(language, &lines, &machine::cores())?)
}

fn script(tools: &Tools<'_>, name: &str) -> Command {
    let mut python = tools.workshop.venv().run_python();
    python.arg(project::path(SOURCES).join(name)).env("PYTHONPATH", tools.workshop.folder());
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

fn keep(tools: &Tools<'_>, section: &Section) -> Result {
    println!("{}", section.body);
    if tools.options.write() {
        report::keep(section, &machine::describe(tools.workshop.venv()).join(". "))?;
    }
    Ok(())
}
