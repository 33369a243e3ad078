//! Tables that name the test which shows each row: what they name exists.
//! What a test shows is for its readers.
//! Invariant: a test that is renamed or removed leaves no row that still claims it.

use std::path::Path;

/// Where tests lie; a table names them from there on.
pub(crate) const FOLDERS: &[&str] = &[
    "crates/dlbridge/tests/",
    "crates/dlbridge-pyo3/tests/",
    "crates/dlbridge-capi/tests/",
    "python/tests/",
    "doctor/tests/",
    "",
];

/// The rows of a text that name what does not exist, as `name:line: what`. `read` gives a file's
/// text by its path.
pub(crate) fn check(name: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    let named = rows.flat_map(|(index, line)| quoted(line).map(move |test| (index + 1, test)));
    let missing = named.filter(|(_, test)| is_test(test) && !exists(test, &read));
    missing.map(|(line, test)| format!("{name}:{line}: there is no test `{test}`")).collect()
}

/// What stands in backticks.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether a name is that of a test: `file::test`, or the file of a program in a folder.
fn is_test(name: &str) -> bool {
    let file = name.split("::").next().unwrap_or_default();
    let is_source = Path::new(file).extension().is_some_and(|e| e == "rs" || e == "py");
    is_source && (name.contains("::") || file.contains('/'))
}

fn exists(test: &str, read: impl Fn(&str) -> Option<String>) -> bool {
    let mut words = test.split("::");
    let file = words.next().unwrap_or_default();
    let Some(text) = FOLDERS.iter().find_map(|folder| read(&format!("{folder}{file}"))) else {
        return false;
    };
    let keyword = |word: &str| {
        ["fn", "def", "class"].iter().any(|keyword| {
            let start = format!("{keyword} {word}");
            let mut found = text.match_indices(&start);
            found.any(|(at, _)| text[at + start.len()..].starts_with(['(', ':', '<']))
        })
    };
    words.all(keyword)
}

#[cfg(test)]
mod tests {
    use super::check;

    fn read(path: &str) -> Option<String> {
        match path {
            "python/tests/test_x.py" => Some("class TestA:\n    def test_b(self):\n".to_owned()),
            "crates/dlbridge/tests/x.rs" => Some("#[test]\nfn it_holds() {}\n".to_owned()),
            "crates/dlbridge/tests/ui/y.rs" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn tests_that_exist_may_be_named() {
        let rows = "| a | `x.rs::it_holds`, `test_x.py::TestA::test_b` |\n| b | `ui/y.rs` |\n";
        assert!(check("t.md", rows, read).is_empty());
    }

    #[test]
    fn tests_that_do_not_exist_are_found() {
        for test in ["x.rs::it_hold", "ui/z.rs", "test_x.py::test_c", "no.rs::it_holds"] {
            assert_eq!(check("t.md", &format!("| a | `{test}` |"), read).len(), 1, "{test}");
        }
    }

    #[test]
    fn other_words_in_backticks_are_no_tests() {
        assert!(
            check("t.md", "| `Tensor::from_raw` | `parse.rs` |\n`no.rs::x`\n", read).is_empty()
        );
    }
}
