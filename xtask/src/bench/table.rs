//! The table: a row for each path and library, for the screen and for a Markdown page.
//! What the numbers are does not belong here.

use crate::bench::libraries::{FLOOR, Library, OURS};
use crate::bench::paths::Path;
use crate::bench::results::Results;

/// The heads of the columns: a path's and a library's name, then numbers.
const HEADS: [&str; 8] =
    ["path", "library", "instructions", "x floor", "allocations", "ns", "budget", ""];
/// Columns of words; the others are numbers, and stand to the right.
const WORDS: [usize; 3] = [0, 1, 7];
const NONE: &str = "-";

/// A table without its heads.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<[String; HEADS.len()]>,
}

impl Table {
    /// A row for each library that has a path, and one for all others.
    pub(crate) fn of(results: &Results, paths: &[Path], libraries: &[&Library]) -> Self {
        let mut table = Self::default();
        for path in paths {
            let having = libraries.iter().filter(|l| results.get(path.key, l.module).is_some());
            let mut rows: Vec<_> = having.map(|library| row(results, path, library)).collect();
            let Some(first) = rows.first_mut() else { continue };
            path.title.clone_into(&mut first[0]);
            if rows.len() < libraries.len() {
                rows.push(["", "the others", NONE, NONE, NONE, NONE, NONE, ""].map(str::to_owned));
            }
            table.rows.extend(rows);
        }
        table
    }

    /// One row for each path through the floor, compared with the first of them.
    pub(crate) fn of_floor(results: &Results, paths: &[Path]) -> Self {
        let mut table = Self::of(results, paths, &[&FLOOR]);
        let reference = paths.first().and_then(|path| results.get(path.key, FLOOR.module));
        for (row, path) in table.rows.iter_mut().zip(paths) {
            row[1].clear();
            let cost = results.get(path.key, FLOOR.module).unwrap_or_default();
            let first = reference.and_then(|cost| cost.instructions);
            row[3] = optional(cost.instructions.zip(first), |(own, first)| ratio(own / first));
        }
        table
    }

    /// Whether nothing was measured.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For the screen: columns are aligned, a path with more rows than one begins after a blank
    /// line.
    pub(crate) fn text(&self) -> String {
        let grouped = self.rows.iter().any(|row| row[0].is_empty());
        let columns = self.columns();
        let width = |column: &usize| self.lines().map(|line| line[*column].len()).max();
        let widths: Vec<_> = columns.iter().map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for (index, line) in self.lines().enumerate() {
            let cells = columns.iter().zip(&widths).map(|(&column, &width)| {
                let cell = line[column];
                if WORDS.contains(&column) {
                    format!("{cell:<width$}")
                } else {
                    format!("{cell:>width$}")
                }
            });
            if grouped && index > 1 && !line[0].is_empty() {
                text.push('\n');
            }
            text += cells.collect::<Vec<_>>().join("  ").trim_end();
            text.push('\n');
        }
        text
    }

    /// For a page.
    pub(crate) fn markdown(&self) -> String {
        let columns = self.columns();
        let joined = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
        let rule = |column: &usize| if WORDS.contains(column) { "---" } else { "---:" };
        let mut lines =
            self.lines().map(|line| joined(columns.iter().map(|&column| line[column]).collect()));
        let heads = lines.next().unwrap_or_default();
        heads + &joined(columns.iter().map(rule).collect()) + &lines.collect::<String>()
    }

    /// The heads and the rows.
    fn lines(&self) -> impl Iterator<Item = [&str; HEADS.len()]> {
        let rows = self.rows.iter().map(|row| row.each_ref().map(String::as_str));
        std::iter::once(HEADS).chain(rows)
    }

    /// The columns that say something.
    fn columns(&self) -> Vec<usize> {
        let says = |&column: &usize| {
            self.rows.iter().any(|row| !row[column].is_empty() && row[column] != NONE)
        };
        (0..HEADS.len()).filter(says).collect()
    }
}

fn row(results: &Results, path: &Path, library: &Library) -> [String; HEADS.len()] {
    let cost = results.get(path.key, library.module).unwrap_or_default();
    let times_floor = results.ratio(path.key, library.module);
    let budget = path.budget.filter(|_| library.module == OURS.module);
    let verdict =
        budget.zip(times_floor).map(|(most, found)| if found <= most { "ok" } else { "over" });
    [
        String::new(),
        library.name.to_owned(),
        optional(cost.instructions, thousands),
        optional(times_floor, ratio),
        optional(cost.allocations, |number| format!("{number:.0}")),
        optional(cost.nanoseconds, |time| format!("{time:.1}")),
        optional(budget, ratio),
        verdict.unwrap_or_default().to_owned(),
    ]
}

fn optional<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| NONE.to_owned(), show)
}

fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// A whole number with a comma before every three digits.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digit.is_ascii_digit() && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text.replace("-,", "-")
}

#[cfg(test)]
mod tests {
    use super::{Table, thousands};
    use crate::bench::libraries::{FLOOR, OURS, PEERS};
    use crate::bench::paths::{PATHS, WAYS_IN};
    use crate::bench::results::tests::some;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(999.6), "1,000");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(12.0), "12");
        assert_eq!(thousands(-123.0), "-123");
    }

    #[test]
    fn a_path_has_a_row_for_each_library_and_one_for_the_rest() {
        let libraries = [&FLOOR, &OURS, &PEERS[0], &PEERS[1]];
        let text = Table::of(&some(), &PATHS, &libraries).text();
        let rows: Vec<Vec<_>> = text.lines().map(|line| line.split("  ").collect()).collect();
        let words = |row: usize| {
            let words = rows[row].iter().map(|word| word.trim()).filter(|word| !word.is_empty());
            words.collect::<Vec<_>>()
        };
        assert_eq!(rows.len(), 4, "{text}");
        assert_eq!(words(1)[1..], ["floor", "1,000", "1.00", "1", "70.5", "-"]);
        assert_eq!(words(2), ["dlbridge", "1,500", "1.50", "2", "-", "1.10", "over"]);
        assert_eq!(words(3), ["the others", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn a_page_has_the_same_rows() {
        let page = Table::of(&some(), &PATHS, &[&FLOOR, &OURS]).markdown();
        assert!(
            page.contains("\n|  | dlbridge | 1,500 | 1.50 | 2 | - | 1.10 | over |\n"),
            "{page}"
        );
        assert_eq!(page.lines().count(), 4);
    }

    #[test]
    fn ways_in_are_compared_with_the_first() {
        let page = Table::of_floor(&some(), &WAYS_IN).markdown();
        assert!(page.contains("| 1,000 | 1.00 | 1 | 70.5 |\n"), "{page}");
    }
}
