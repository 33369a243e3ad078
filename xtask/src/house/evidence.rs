//! Tables whose rows name the test that shows them: each test exists.

use std::path::Path;

/// The folders of tests; a table names a test relative to one of them.
const FOLDERS: &[&str] = &[
    "crates/dlbridge/tests/it/",
    "crates/dlbridge/tests/",
    "crates/dlbridge-pyo3/tests/",
    "crates/dlbridge-capi/tests/",
    "python/tests/",
    "doctor/tests/",
    "",
];

/// The rows of a text that name a missing test, as `name:line: what`. `read` gives a file's
/// text by its path.
pub(crate) fn check(name: &str, text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let rows = text.lines().enumerate().filter(|(_, line)| line.starts_with('|'));
    // Every other piece is in backticks.
    let named = rows.flat_map(|(index, line)| {
        line.split('`').skip(1).step_by(2).map(move |test| (index + 1, test))
    });
    let missing = named.filter(|(_, test)| is_test(test) && !exists(test, &read));
    missing.map(|(line, test)| format!("{name}:{line}: there is no test `{test}`")).collect()
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
    fn only_names_of_tests_that_do_not_exist_are_found() {
        let fine = "| a | `x.rs::it_holds`, `test_x.py::TestA::test_b` |\n| b | `ui/y.rs` |\n\
                    | `Tensor::from_raw` | `parse.rs` |\n`no.rs::x`\n";
        assert!(check("t.md", fine, read).is_empty());
        for test in ["x.rs::it_hold", "ui/z.rs", "test_x.py::test_c", "no.rs::it_holds"] {
            assert_eq!(check("t.md", &format!("| a | `{test}` |"), read).len(), 1, "{test}");
        }
    }
}
