//! Exchanges per second by the number of threads: a table and a chart.
//! Invariant: the lines are `threads who rate`, `threads path who rate` or `note text`, tabs between.

use crate::bench::chart::{Axis, Line, Lines};
use crate::bench::distinct;
use crate::bench::report::Section;
use crate::bench::results;
use crate::failure::{Failure, Result};

/// How charts and tables name this project's rows.
const OURS: &str = "dlbridge";
const MILLION: f64 = 1e6;

/// How many exchanges somebody makes with so many threads.
#[derive(Debug)]
struct Row {
    threads: f64,
    who: String,
    rate: f64,
}

/// The section of what a program printed, on a machine with so many cores.
pub(crate) fn section(language: &str, output: &str, cores: &str) -> Result<Section> {
    let (notes, records): (Vec<_>, Vec<_>) =
        output.lines().partition(|line| line.starts_with("note\t"));
    let rows = parse(&records)?;
    let notes: String =
        notes.iter().map(|line| format!("- {}\n", &line["note\t".len()..])).collect();
    let body = format!(
        "Millions of exchanges a second, all threads together, the best of 11 rounds, on {cores}.\n\
         {}\n\n{}\n{notes}",
        introduction(language),
        table(&rows)
    );
    let name = match language {
        "Rust" => "threads-rust",
        "Python" => "threads-python",
        _ => "threads-free-threaded",
    };
    let chart = lines(language, &rows, cores).svg();
    Ok(Section { title: format!("{language}: threads"), body, chart: Some((name, chart)) })
}

fn introduction(language: &str) -> &'static str {
    if language == "Rust" {
        "An exchange makes an array of 2 x 3 numbers, a tensor of it, sees it as an array again and drops all."
    } else {
        "In: a NumPy array, of each thread its own, becomes a tensor in Rust, of which one element is read. Out: a new\n\
         tensor becomes a NumPy array. Python's own loop is counted too, the same for all. The last row is a loop that\n\
         exchanges nothing: where that does not grow with the threads, nothing can, for lack of a free core or for\n\
         Python's lock."
    }
}

fn parse(lines: &[&str]) -> Result<Vec<Row>> {
    let row = |line: &str| {
        let words: Vec<_> = line.split('\t').collect();
        let (threads, rest) = words.split_first()?;
        let (rate, who) = rest.split_last()?;
        let (module, path) = who.split_last()?;
        let who =
            path.iter().copied().chain([results::name(module)]).collect::<Vec<_>>().join(", ");
        Some(Row { threads: threads.parse().ok()?, who, rate: rate.parse().ok()? })
    };
    let rows = lines.iter();
    rows.map(|line| row(line).ok_or_else(|| Failure::new(format!("no rate: {line}")))).collect()
}

fn counts(rows: &[Row]) -> Vec<f64> {
    distinct(rows.iter().map(|row| row.threads))
}

/// A row for each library, in the order of the first number of threads.
fn table(rows: &[Row]) -> String {
    let counts = counts(rows);
    let heads: String = counts.iter().map(|count| format!(" {} |", threads(*count))).collect();
    let mut table = format!("| by |{heads}\n| --- |{}\n", " ---: |".repeat(counts.len()));
    for (who, points) in by_library(rows) {
        let cells: String = counts.iter().map(|count| cell(&points, *count)).collect();
        table += &format!("| {who} |{cells}\n");
    }
    table
}

fn cell(points: &[(f64, f64)], threads: f64) -> String {
    let found = points.iter().find(|(count, _)| *count == threads);
    found.map_or_else(|| " - |".to_owned(), |(_, rate)| format!(" {:.2} |", rate / MILLION))
}

fn by_library(rows: &[Row]) -> Vec<(&str, Vec<(f64, f64)>)> {
    let mut libraries: Vec<(&str, Vec<_>)> = Vec::new();
    for row in rows {
        let point = (row.threads, row.rate);
        match libraries.iter_mut().find(|(who, _)| *who == row.who) {
            Some((_, points)) => points.push(point),
            None => libraries.push((&row.who, vec![point])),
        }
    }
    libraries
}

fn lines(language: &str, rows: &[Row], cores: &str) -> Lines {
    // Of several paths, the first.
    let path = |who: &str| who.split_once(", ").map(|(path, _)| path.to_owned());
    let first = rows.first().and_then(|row| path(&row.who));
    let drawn = rows.iter().filter(|row| path(&row.who) == first);
    let most = drawn.map(|row| row.rate).fold(MILLION / 10.0, f64::max);
    // four ticks of a round number
    let magnitude = 10.0_f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 3.0, 4.0, 5.0, 10.0].map(|factor| factor * magnitude);
    let step = step.into_iter().find(|step| step * 4.0 >= most).unwrap_or(most);
    let up =
        (0..=4).map(|i| (f64::from(i) * step, format!("{:.1} M", f64::from(i) * step / MILLION)));
    let is_drawn = |(who, _): &(&str, Vec<_>)| path(who) == first;
    let line = |(who, points): (&str, Vec<_>)| {
        let label = who.rsplit(", ").next().unwrap_or(who).to_owned();
        Line { is_ours: label == OURS, label, points }
    };
    Lines {
        title: format!("{language}: exchanges a second, by threads"),
        subtitle: match &first {
            Some(path) => format!("{path}, all threads together, on {cores}"),
            None => format!("all threads together, on {cores}"),
        },
        across: Axis { ticks: counts(rows).into_iter().map(|n| (n, threads(n))).collect() },
        up: Axis { ticks: up.collect() },
        is_log: false,
        lines: by_library(rows).into_iter().filter(is_drawn).map(line).collect(),
    }
}

fn threads(count: f64) -> String {
    if count == 1.0 { "1 thread".to_owned() } else { format!("{count} threads") }
}

#[cfg(test)]
mod tests {
    use super::section;

    #[test]
    fn a_library_has_one_row_and_one_line() {
        let output = "1\tin\tdlbridge\t2000000\n2\tin\tdlbridge\t3000000\n1\tin\tfloor\t1000000\n\
                      note\tno torch\n";
        let section = section("Python", output, "2 cores").unwrap();
        let rows = "| in, dlbridge | 2.00 | 3.00 |\n| in, floor | 1.00 | - |\n\n- no torch\n";
        assert!(section.body.ends_with(rows), "{}", section.body);
        let (name, svg) = section.chart.unwrap();
        assert_eq!((name, svg.matches("<polyline").count()), ("threads-python", 2));
        assert!(svg.contains("class=\"our-text\" text-anchor=\"start\">dlbridge<"), "{svg}");
        assert!(super::section("Python", "x\n", "2 cores").is_err());
    }
}
