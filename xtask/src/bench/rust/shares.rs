//! Shares between Rust crates, beside the peers, in one run.
//! What is shared is decided in `benches/rust/src/shares`.

use std::path::Path;

use crate::bench::machine;
use crate::command;
use crate::failure::{Failure, Result};

const INTRODUCTION: &str = "\
One share of an array: nanoseconds (the median of 101 rounds), allocations, and instructions where the
share is not mostly a copy.

";
/// How much slower than the floor the main row may be, and how often it may allocate.
const SLOWEST: f64 = 1.3;
const ALLOCATIONS: u64 = 1;
/// The group that has the budget is the first one; these are its rows.
const MAIN: &str = "dlbridge";
const FLOOR: &str = "one-box floor";

/// A case that was measured.
#[derive(Debug)]
struct Row {
    /// The numbers by which the program knows it.
    place: [usize; 2],
    group: String,
    shape: String,
    who: String,
    ns: f64,
    allocations: u64,
    instructions: Option<u64>,
}

/// Measures all shares; gives the section of the page.
pub(super) fn measure(program: &Path) -> Result<String> {
    let output = command::output(command::program(program).arg("shares"))?;
    let mut rows = parse(&output)?;
    if machine::lacks_valgrind().is_none() {
        rows.iter_mut().for_each(|row| row.instructions = instructions(program, row));
    }
    Ok(format!("{INTRODUCTION}{}\n{}", table(&rows), verdict(&rows)?))
}

fn parse(output: &str) -> Result<Vec<Row>> {
    let row = |line: &str| -> Option<Row> {
        let cells: Vec<_> = line.split('\t').collect();
        let [group_at, case_at, group, shape, who, ns, allocations] = cells[..] else {
            return None;
        };
        let place = [group_at.parse().ok()?, case_at.parse().ok()?];
        let (ns, allocations) = (ns.parse().ok()?, allocations.parse().ok()?);
        let [group, shape, who] = [group, shape, who].map(str::to_owned);
        Some(Row { place, group, shape, who, ns, allocations, instructions: None })
    };
    let lines = output.lines();
    lines.map(|line| row(line).ok_or_else(|| Failure::new(format!("no row: {line}")))).collect()
}

/// Instructions of one share: those of 1100 less those of 100, over 1000. Only of the first group:
/// the others copy, which takes more time than it takes instructions.
fn instructions(program: &Path, row: &Row) -> Option<u64> {
    let [0, case] = row.place else { return None };
    let counted = |count: u64| {
        let mut valgrind = command::program("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program);
        let output =
            valgrind.args(["shares", "0", &case.to_string(), &count.to_string()]).output().ok()?;
        collected(&String::from_utf8_lossy(&output.stderr))
    };
    let (more, less) = (counted(1100)?, counted(100)?);
    Some(more.saturating_sub(less) / 1000)
}

/// What valgrind says that it collected.
fn collected(report: &str) -> Option<u64> {
    let line = report.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn table(rows: &[Row]) -> String {
    let mut lines = vec![
        "| f32 | array | by | ns | x first | allocations | instructions |".to_owned(),
        "| --- | --- | --- | --- | --- | --- | --- |".to_owned(),
    ];
    let mut first = 1.0;
    for row in rows {
        let Row { group, shape, who, ns, allocations, .. } = row;
        if row.place[1] == 0 {
            first = *ns;
        }
        let times = ns / first;
        let counted = row.instructions.map_or("-".to_owned(), |number| number.to_string());
        lines.push(format!(
            "| {group} | {shape} | {who} | {ns:.0} | {times:.2} | {allocations} | {counted} |"
        ));
    }
    lines.join("\n") + "\n"
}

/// Whether the main row keeps its budget.
fn verdict(rows: &[Row]) -> Result<String> {
    let find = |who: &str| {
        let found = rows.iter().find(|row| row.place[0] == 0 && row.who == who);
        found.ok_or_else(|| Failure::new(format!("nothing was measured of: {who}")))
    };
    let (main, floor) = (find(MAIN)?, find(FLOOR)?);
    let (times, allocations) = (main.ns / floor.ns, main.allocations);
    let word = |ok: bool| if ok { "ok" } else { "over" };
    Ok(format!(
        "{}: {times:.2} x the floor, at most {SLOWEST}: {}; allocations {allocations}, wanted \
         {ALLOCATIONS}: {}",
        main.group,
        word(times <= SLOWEST),
        word(allocations == ALLOCATIONS),
    ))
}

#[cfg(test)]
mod tests {
    use super::{collected, parse, table, verdict};

    const OUTPUT: &str = "0\t0\tthere\t2 x 3\tone-box floor\t20.0\t1\n\
                          0\t1\tthere\t2 x 3\tdlbridge\t25.0\t1\n";

    #[test]
    fn rows_are_compared_with_the_first_of_their_group() {
        let rows = parse(OUTPUT).unwrap();
        assert!(table(&rows).contains("| there | 2 x 3 | dlbridge | 25 | 1.25 | 1 | - |"));
        assert!(verdict(&rows).unwrap().contains("1.25 x the floor, at most 1.3: ok"));
        let slow = parse(&OUTPUT.replace("25.0\t1", "27.0\t2")).unwrap();
        let said = verdict(&slow).unwrap();
        assert!(said.contains("1.3: over") && said.ends_with("wanted 1: over"), "{said}");
        assert!(parse("not a row").is_err() && verdict(&rows[1..]).is_err());
    }

    #[test]
    fn valgrinds_number_is_found() {
        assert_eq!(collected("==1== Events    : Ir\n==1== Collected : 2098765\n"), Some(2_098_765));
        assert_eq!(collected("no such line"), None);
    }
}
