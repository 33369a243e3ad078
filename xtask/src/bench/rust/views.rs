//! Loops over views: tables and a chart.
//! Which loops there are is decided in `benches/rust/src/views`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::bench::build::bench_folder;
use crate::bench::callgrind;
use crate::bench::chart::{Bars, Mark, Panel, Row};
use crate::bench::machine;
use crate::bench::report::Section;
use crate::command;
use crate::failure::{Failure, Result};
use crate::project;

const INTRODUCTION: &str = "\
Loops over 16 KiB of elements side by side, or over 4096 elements of other layouts. A number is how many
times as long the loop takes as the first column's (the quickest of 301 rounds), and in brackets how many
times as many instructions (callgrind). A `View` reads memory of any access class, and memory that another
language may write; slices are for memory that is ours alone. The layout does not change what is lent:
`as_cells` is for memory side by side.

";
/// The function whose calls callgrind counts, and how many loops one call runs.
const COUNTED: &str = "counted_views";
const LOOPS: u64 = 20;
/// What the loops over memory side by side may take, of a slice's, and those over other memory, of
/// ndarray's.
const BUDGETS: [(&str, f64); 2] = [("slice", 1.05), ("ndarray", 1.0)];
const SIDE_BY_SIDE: &str = "contiguous";
const CHARTED: &str = "uint8";
const OURS: &str = "View";

/// One loop by somebody.
#[derive(Debug)]
struct Loop {
    name: String,
    dtype: String,
    layout: String,
    who: String,
    ns: f64,
    instructions: Option<f64>,
}

/// The loops over the same elements, by who runs them.
type Case<'a> = BTreeMap<&'a str, &'a Loop>;

/// Measures all loops.
pub(super) fn measure(program: &Path) -> Result<Section> {
    let mut loops = parse(&command::output(command::program(program).arg("views"))?)?;
    if machine::lacks_valgrind().is_none() {
        let counts = counts(program)?;
        if counts.len() == loops.len() {
            let per_loop = |count: u64| count as f64 / LOOPS as f64;
            loops
                .iter_mut()
                .zip(counts)
                .for_each(|(l, count)| l.instructions = Some(per_loop(count)));
        }
    }
    let body = format!(
        "{INTRODUCTION}{}\n### Layouts that are no slice's\n\n{}",
        contiguous_table(&loops),
        strided_table(&loops)
    );
    Ok(Section { title: "Rust: views".to_owned(), body, chart: Some(("views", chart(&loops))) })
}

fn parse(output: &str) -> Result<Vec<Loop>> {
    let parsed = |line: &str| {
        let [_, _, name, dtype, layout, who, ns] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let ns = ns.parse().ok()?;
        let [name, dtype, layout, who] = [name, dtype, layout, who].map(str::to_owned);
        Some(Loop { name, dtype, layout, who, ns, instructions: None })
    };
    let lines = output.lines();
    lines.map(|line| parsed(line).ok_or_else(|| Failure::new(format!("no loop: {line}")))).collect()
}

/// The instructions of each call of the counted function, in order.
fn counts(program: &Path) -> Result<Vec<u64>> {
    let folder = bench_folder()?.join("callgrind").join("views");
    let _ = fs::remove_dir_all(&folder);
    project::make_folder(&folder)?;
    let dump = folder.join("dump");
    let mut valgrind = command::program("valgrind");
    valgrind.args(["--tool=callgrind", "--quiet"]);
    valgrind.arg(format!("--toggle-collect={COUNTED}")).arg(format!("--dump-after={COUNTED}"));
    valgrind.arg(format!("--callgrind-out-file={}", dump.display()));
    command::output(valgrind.arg(program).args(["views", &LOOPS.to_string()]))?;
    let dumps =
        (1..).map_while(|part| fs::read_to_string(format!("{}.{part}", dump.display())).ok());
    // The last dump is written at the end of the program, after the last call.
    let totals: Vec<_> = dumps.filter_map(|text| callgrind::total(&text)).collect();
    Ok(totals.into_iter().filter(|total| *total > 0).collect())
}

/// The loops in their order, those over the same elements together.
fn cases(loops: &[Loop], contiguous: bool) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    let key = |l: &Loop| [l.name.clone(), l.dtype.clone(), l.layout.clone()];
    let mut last = None;
    for found in loops.iter().filter(|l| (l.layout == SIDE_BY_SIDE) == contiguous) {
        if last.replace(key(found)) != Some(key(found)) {
            cases.push(Case::new());
        }
        if let Some(case) = cases.last_mut() {
            case.insert(&found.who, found);
        }
    }
    cases
}

/// Times and instructions of one loop, as multiples of another's.
fn ratios(case: &Case<'_>, who: &str, reference: &str) -> Option<(f64, Option<f64>)> {
    let (own, other) = (case.get(who)?, case.get(reference)?);
    let instructions = own.instructions.zip(other.instructions);
    Some((own.ns / other.ns, instructions.map(|(own, other)| own / other)))
}

fn cell(ratios: Option<(f64, Option<f64>)>) -> String {
    match ratios {
        Some((time, Some(count))) => format!("{time:.2} ({count:.2})"),
        Some((time, None)) => format!("{time:.2}"),
        None => "-".to_owned(),
    }
}

fn contiguous_table(loops: &[Loop]) -> String {
    let mut table = "| loop | elements | slice, ns | View | as_cells | as_slice | ndarray |\n\
                     | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
        .to_owned();
    for case in cases(loops, true) {
        let Some(first) = case.get("slice") else { continue };
        let cells = [OURS, "as_cells", "as_slice", "ndarray"];
        let cells = cells.map(|who| cell(ratios(&case, who, "slice"))).join(" | ");
        table += &format!("| {} | {} | {:.0} | {cells} |\n", first.name, first.dtype, first.ns);
    }
    table
}

fn strided_table(loops: &[Loop]) -> String {
    let mut table = "| layout | loop | elements | ndarray, ns | View |\n\
                     | --- | --- | --- | ---: | ---: |\n"
        .to_owned();
    for case in cases(loops, false) {
        let Some(first) = case.get("ndarray") else { continue };
        let Loop { name, dtype, layout, ns, .. } = first;
        let cell = cell(ratios(&case, OURS, "ndarray"));
        table += &format!("| {layout} | {name} | {dtype} | {ns:.0} | {cell} |\n");
    }
    table
}

/// Loops over the smallest elements, where a slice's loop is the quickest: instructions, which come
/// out the same in each run, where they were counted.
fn chart(loops: &[Loop]) -> String {
    let panel = |contiguous, title: &str, (reference, budget): (&str, f64)| {
        let mark = |case: &Case<'_>, who| {
            let (time, count) = ratios(case, who, reference)?;
            Some(Mark { value: count.unwrap_or(time), is_ours: who == OURS })
        };
        let rows = cases(loops, contiguous).into_iter().filter_map(|case| {
            let first = case.get(reference)?;
            if first.dtype != CHARTED {
                return None;
            }
            let place = if contiguous { "" } else { &first.layout };
            let label = format!("{place}: {}", first.name);
            let others = (reference != "ndarray").then(|| mark(&case, "ndarray")).flatten();
            let marks = std::iter::once(mark(&case, OURS)?).chain(others).collect();
            Some(Row { label: label.trim_start_matches(": ").to_owned(), marks })
        });
        Panel { title: title.to_owned(), rows: rows.collect(), budget: Some(budget) }
    };
    let bars = Bars {
        title: "Loops over a View of bytes",
        subtitle: "instructions, times those of a slice's loop or of ndarray's; blue and first: View, grey: ndarray",
        panels: vec![
            panel(true, "Contiguous memory, x slice", BUDGETS[0]),
            panel(false, "Strided memory, x ndarray", BUDGETS[1]),
        ],
        label_width: 170.0,
    };
    bars.svg()
}

#[cfg(test)]
mod tests {
    use super::{cases, contiguous_table, parse, strided_table};

    const OUTPUT: &str = "0\t0\tsum\tuint8\tcontiguous\tslice\t100.0\n\
                          0\t1\tsum\tuint8\tcontiguous\tView\t101.0\n\
                          1\t0\tsum\tuint8\ttransposed\tndarray\t100.0\n\
                          1\t1\tsum\tuint8\ttransposed\tView\t90.0\n";

    #[test]
    fn loops_are_compared_within_their_case() {
        let mut loops = parse(OUTPUT).unwrap();
        assert_eq!((cases(&loops, true).len(), cases(&loops, false).len()), (1, 1));
        let row = "| sum | uint8 | 100 | 1.01 | - | - | - |\n";
        assert!(contiguous_table(&loops).ends_with(row), "{}", contiguous_table(&loops));
        loops.iter_mut().zip([10.0, 10.0, 10.0, 8.0]).for_each(|(l, n)| l.instructions = Some(n));
        assert!(strided_table(&loops).ends_with("| 100 | 0.90 (0.80) |\n"));
        assert!(parse("not a loop").is_err());
    }
}
