//! `cargo xtask bench julia`: what an import and a share cost in Julia, in one table.
//! What is measured is decided in `julia/DLBridge/bench/bench.jl`.

use crate::args::Args;
use crate::bench::machine;
use crate::bench::report::{self, Section};
use crate::commands::setup;
use crate::failure::{Failure, Result};
use crate::julia::{self, Julia};
use crate::steps::{Outcome, Steps};

const INTRODUCTION: &str = "\
Imports and shares of an array of `float32[2, 3]`, next to calls by hand that do only what the protocol needs:
nanoseconds of the quickest of 100 rounds, and the bytes that Julia allocates.

";

/// Measures; `--write` keeps the table.
pub(crate) fn run(mut args: Args) -> Result {
    let write = args.flag("--write");
    args.finish()?;
    let mut steps = Steps::default();
    measure(write, &mut steps);
    steps.finish()
}

/// Measures, where there is a Julia.
pub(crate) fn measure(write: bool, steps: &mut Steps) {
    steps.step("measure in Julia", || {
        let program = match julia::find()? {
            Julia::Program(program) => program,
            Julia::Missing(reason) => return Ok(Outcome::Skipped(reason)),
        };
        let venv = setup::ready(&[])?;
        let output = julia::bench(&program, &venv)?;
        if let Some(reason) = output.strip_prefix("skipped\t") {
            return Ok(Outcome::Skipped(reason.trim().to_owned()));
        }
        let table = table(&output)?;
        println!("{table}");
        if write {
            let section = Section::without_chart("Julia", INTRODUCTION.to_owned() + &table);
            report::keep(&section, &machine::describe(&venv).join(". "))?;
        }
        Ok(Outcome::Done)
    });
}

/// The lines `julia version` and `path what ns bytes`, tabs between, as a table. Each path is
/// compared with the first that is done there.
fn table(output: &str) -> Result<String> {
    let mut table = String::new();
    let mut first = ("", 1.0);
    for line in output.lines() {
        let words: Vec<_> = line.split('\t').collect();
        match words[..] {
            ["julia", version] => {
                table += &format!(
                    "| Julia {version} | by | ns | x first | bytes |\n\
                     | --- | --- | ---: | ---: | ---: |\n"
                );
            }
            [path, what, ns, bytes] => {
                let number = ns.parse::<f64>();
                let ns = number.map_err(|_| Failure::new(format!("no time: {line}")))?;
                let is_first = first.0 != path;
                if is_first {
                    first = (path, ns);
                }
                let (times, path) = (ns / first.1, if is_first { path } else { "" });
                table += &format!("| {path} | {what} | {ns:.0} | {times:.2} | {bytes} |\n");
            }
            _ => return Err(Failure::new(format!("no measurement: {line}"))),
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn each_path_is_compared_with_its_first() {
        let output = "julia\t1.5.3\nimport\tby hand\t100.0\t0\nimport\tours\t150.4\t96\n\
                      share\ttype\t30.0\t16\n";
        let rows = "| import | by hand | 100 | 1.00 | 0 |\n|  | ours | 150 | 1.50 | 96 |\n\
                    | share | type | 30 | 1.00 | 16 |\n";
        assert!(table(output).unwrap().ends_with(rows));
        assert!(table("skipped: no numpy\n").is_err());
    }
}
