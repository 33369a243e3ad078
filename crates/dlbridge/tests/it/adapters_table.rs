//! The table in `docs/adapters.md` names tests that exist.
//! Whether they show what the table says is for its readers to judge.

use std::fs;
use std::path::Path;

#[test]
fn every_row_names_a_test_that_exists() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(crate_folder.join("../../docs/adapters.md")).expect("the table");
    let rows = table.lines().filter(|line| line.starts_with('|'));
    let named = rows.flat_map(|row| row.split('`')).filter_map(|words| words.split_once("::"));
    let mut count = 0;
    for (file, test) in named.filter(|(file, _)| !file.contains(' ')) {
        let read =
            |folder| fs::read_to_string(crate_folder.join(folder).join(file).with_extension("rs"));
        let source =
            read("tests/it").or_else(|_| read("tests")).unwrap_or_else(|_| panic!("no {file}"));
        assert!(source.contains(&format!("fn {test}(")), "{file} has no test {test}");
        count += 1;
    }
    assert!(count > 20, "found only {count} names");
}
