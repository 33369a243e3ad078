//! What a share takes whatever its size, beside a copy: a table and a chart.
//! Invariant: the lines are `bytes who nanoseconds added`, tabs between; who copies says so.

use crate::bench::chart::{Axis, Line, Lines};
use crate::bench::distinct;
use crate::bench::report::Section;
use crate::failure::{Failure, Result};

/// What a way is called that copies.
const COPY: &str = "copy";

/// One way at one size.
#[derive(Debug)]
struct Row {
    bytes: f64,
    who: String,
    ns: f64,
    added: f64,
}

/// The section of what a program printed.
pub(crate) fn section(language: &str, output: &str) -> Result<Section> {
    let rows = parse(output)?;
    let chart = if language == "Python" { "sizes-python" } else { "sizes-rust" };
    Ok(Section {
        title: format!("{language}: sizes"),
        body: format!("{}\n\n{}", introduction(language), table(&rows)),
        chart: Some((chart, lines(language, &rows).svg())),
    })
}

fn introduction(language: &str) -> &'static str {
    if language == "Python" {
        "Arrays of `uint8`, so bytes are elements: nanoseconds of the quickest round, and the bytes of resident memory\n\
         that one result adds while the array that it came from lives. Into Rust and back is the way of a function that\n\
         takes a `PyTensor` and returns it."
    } else {
        "Vectors of bytes: into a `Tensor`, seen as a slice, and out again as the vector; nanoseconds of the quickest\n\
         round, and the bytes asked of the allocator. A tensor's one allocation, its header, is all that is asked for."
    }
}

fn parse(output: &str) -> Result<Vec<Row>> {
    let row = |line: &str| {
        let [bytes, who, ns, added] = line.split('\t').collect::<Vec<_>>()[..] else { return None };
        let [bytes, ns, added] = [bytes, ns, added].map(|number| number.parse().ok());
        Some(Row { bytes: bytes?, who: who.to_owned(), ns: ns?, added: added? })
    };
    let lines = output.lines();
    lines.map(|line| row(line).ok_or_else(|| Failure::new(format!("no size: {line}")))).collect()
}

/// The ways, in the order in which they were measured.
fn ways(rows: &[Row]) -> Vec<&str> {
    let mut ways: Vec<&str> = Vec::new();
    for row in rows {
        if !ways.contains(&&row.who[..]) {
            ways.push(&row.who);
        }
    }
    ways
}

fn sizes(rows: &[Row]) -> Vec<f64> {
    distinct(rows.iter().map(|row| row.bytes))
}

fn table(rows: &[Row]) -> String {
    let ways = ways(rows);
    let heads: String = ways.iter().map(|who| format!(" {who}, ns | added |")).collect();
    let mut table = format!("| size |{heads}\n| ---: |{}\n", " ---: | ---: |".repeat(ways.len()));
    for size in sizes(rows) {
        table += &format!("| {} |", bytes(size));
        for who in &ways {
            match rows.iter().find(|row| row.bytes == size && row.who == *who) {
                Some(row) => table += &format!(" {:.0} | {} |", row.ns, bytes(row.added)),
                None => table += " - | - |",
            }
        }
        table.push('\n');
    }
    table
}

fn lines(language: &str, rows: &[Row]) -> Lines {
    let line = |who: &str| {
        let own = rows.iter().filter(|row| row.who == who);
        Line {
            label: who.to_owned(),
            points: own.map(|row| (row.bytes, row.ns)).collect(),
            is_ours: !who.contains(COPY),
        }
    };
    // the powers of 1000 around all times
    let most = rows.iter().map(|row| row.ns).fold(1.0, f64::max).log(1000.0).ceil();
    let names = ["1 ns", "1 \u{b5}s", "1 ms", "1 s", "1000 s"];
    let up = (0..names.len()).take_while(|&i| i as f64 <= most);
    let named = sizes(rows).into_iter().enumerate().filter(|(index, _)| index % 3 == 0);
    Lines {
        title: format!("{language}: a share takes as long whatever its size"),
        subtitle: "time of one share or one copy, by bytes; both scales logarithmic".to_owned(),
        across: Axis { ticks: named.map(|(_, size)| (size, bytes(size))).collect() },
        up: Axis { ticks: up.map(|i| (1000.0_f64.powi(i as i32), names[i].to_owned())).collect() },
        is_log: true,
        lines: ways(rows).into_iter().map(line).collect(),
    }
}

fn bytes(number: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB"];
    let mut unit = 0;
    let mut number = number;
    while number >= 1024.0 && unit + 1 < units.len() {
        number /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && number.fract() > 0.05 && number < 10.0);
    format!("{number:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::{bytes, section};

    #[test]
    fn sizes_have_units() {
        let all = [0.0, 152.0, 1024.0, 1536.0, 268_435_456.0].map(bytes);
        assert_eq!(all, ["0 B", "152 B", "1 KiB", "1.5 KiB", "256 MiB"]);
    }

    #[test]
    fn a_share_stands_beside_a_copy() {
        let output = "1024\tdlbridge\t16.0\t152\n1024\tcopy\t80.0\t1024\n\
                      4096\tdlbridge\t16.0\t152\n4096\tcopy\t300.0\t4096\n";
        let section = section("Rust", output).unwrap();
        let row = "| 4 KiB | 16 | 152 B | 300 | 4 KiB |\n";
        assert!(section.body.ends_with(row), "{}", section.body);
        let (_, svg) = section.chart.unwrap();
        assert_eq!(svg.matches("class=\"ours\"").count(), 3, "a line and its points");
        assert!(super::section("Rust", "1024\tcopy\n").is_err());
    }
}
