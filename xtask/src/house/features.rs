//! The table of features in the README: its first column is headed `feature`, each cell in it is
//! a feature's name in backticks.

/// The names in the first such table, if there is one.
pub(crate) fn table(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| !is_header(line));
    lines.next()?;
    let rows = lines.take_while(|line| line.starts_with('|'));
    Some(rows.filter_map(name).map(str::to_owned).collect())
}

/// What a table lacks or has too much, in words.
pub(crate) fn differences(table: &[String], features: &[String]) -> Vec<String> {
    let missing = features.iter().filter(|feature| !table.contains(feature));
    let unknown = table.iter().filter(|name| !features.contains(name));
    missing
        .map(|name| format!("README.md: the table of features lacks `{name}`"))
        .chain(unknown.map(|name| format!("README.md: there is no feature `{name}`")))
        .collect()
}

fn is_header(line: &str) -> bool {
    first_cell(line).is_some_and(|cell| cell.eq_ignore_ascii_case("feature"))
}

fn name(line: &str) -> Option<&str> {
    first_cell(line)?.strip_prefix('`')?.strip_suffix('`')
}

fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix('|')?.split('|').next().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::{differences, table};

    const README: &str = "\
| command | what |
| --- | --- |
| `test` | tests |

| Feature | adds |
| --- | --- |
| `half-2` | f16 |
| `ndarray-0_17` | arrays |

| `testing` | in another table |
";

    fn names(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn only_the_table_of_features_is_read() {
        assert_eq!(table(README), Some(names(&["half-2", "ndarray-0_17"])));
        assert_eq!(table("no table"), None);
    }

    #[test]
    fn differences_are_found_both_ways() {
        let found = differences(&names(&["half-2", "old"]), &names(&["half-2", "new"]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("`new`") && found[1].contains("`old`"));
        assert!(differences(&names(&["a", "b"]), &names(&["b", "a"])).is_empty());
    }
}
