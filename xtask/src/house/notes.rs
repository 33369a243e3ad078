//! SAFETY notes: each cites a number that `SAFETY.md` lists, or names the duty that it relies on, and
//! each number that is cited is listed. That there is a note is clippy's lint.

use std::path::Path;

use crate::shell::LIBRARIES;

/// The first letters of numbers: invariants, trust in a producer and in a consumer, rules of foreign
/// functions.
const KINDS: [char; 4] = ['R', 'T', 'C', 'F'];
/// How a note names a duty that is written at a function, a trait or a constructor.
const DUTIES: [&str; 4] = ["'s duty", "'s duties", "duty of", "duties of"];
/// How a note refers to the one before it in the file.
const AGAIN: [&str; 2] = ["the same", "as above"];

/// The numbers that a text lists: at the head of a line of a list, or of a row of a table.
pub(crate) fn listed(text: &str) -> Vec<String> {
    let heads = text.lines().filter_map(|line| {
        let item = line.strip_prefix("- **").and_then(|rest| rest.split("**").next());
        let row = line.strip_prefix("| ").and_then(|rest| rest.split(" |").next());
        item.or(row)
    });
    heads.filter(|head| is_number(head)).map(str::to_owned).collect()
}

/// Every note in a file that violates the rule, as `name:line: what`.
pub(crate) fn check(name: &str, text: &str, listed: &[String]) -> Vec<String> {
    if !is_checked(name) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut stands = false;
    for (line, note) in notes(text) {
        let cited = numbers(&note);
        for number in cited.iter().filter(|&&number| !listed.iter().any(|known| known == number)) {
            findings.push(format!("{name}:{line}: SAFETY.md lists no {number}"));
        }
        let names_duty = DUTIES.iter().any(|words| note.contains(words));
        let says_again = stands && AGAIN.iter().any(|words| note.starts_with(words));
        stands = !cited.is_empty() || names_duty || says_again;
        if !stands {
            findings.push(format!(
                "{name}:{line}: a SAFETY note that cites no number of SAFETY.md and names no duty"
            ));
        }
    }
    findings
}

/// Ranges such as `T1 to T3` that end before the last number that is listed, or behind it.
pub(crate) fn ranges(name: &str, text: &str, listed: &[String]) -> Vec<String> {
    let (plain, mut findings) = (text.replace('`', ""), Vec::new());
    for kind in KINDS {
        let last = listed.iter().filter(|number| number.starts_with(kind)).count().to_string();
        for range in plain.split(&format!("{kind}1 to {kind}")).skip(1) {
            let end = range.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            if end != last {
                findings.push(format!("{name}: {kind}1 to {kind}{end}, but there are {last}"));
            }
        }
    }
    findings
}

/// The numbers in a text, such as `R3`.
pub(crate) fn numbers(text: &str) -> Vec<&str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| is_number(word)).collect()
}

/// The sources of the published crates, and of the Python module.
fn is_checked(name: &str) -> bool {
    let is_rust = Path::new(name).extension().is_some_and(|extension| extension == "rs");
    let is_library = LIBRARIES.iter().any(|it| name.starts_with(it)) && name.contains("/src/");
    is_rust && (is_library || name.starts_with("python/src/"))
}

pub(super) fn is_number(word: &str) -> bool {
    word.strip_prefix(KINDS).is_some_and(|digits| {
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// The notes of a file, joined to one line each, with the number of their first line.
fn notes(text: &str) -> Vec<(usize, String)> {
    let mut notes: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if let Some(start) = line.strip_prefix("// SAFETY:") {
            notes.push((index + 1, start.trim().to_owned()));
            is_open = true;
        } else if let (true, Some(more), Some((_, note))) =
            (is_open, line.strip_prefix("// "), notes.last_mut())
        {
            note.push(' ');
            note.push_str(more.trim());
        } else {
            is_open = false;
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::{check, listed, ranges};

    const SAFETY: &str = "- **T1** A producer keeps this.\n| R2 | an invariant | `file.rs` |\n- **C1** A consumer keeps this.\n\
        - **Bold** words that are no number.\nSee T9, which is not listed.\n";

    #[test]
    fn a_note_cites_a_listed_number_or_names_a_duty() {
        assert_eq!(listed(SAFETY), ["T1", "R2", "C1"]);
        for (notes, findings) in [
            ("alive (R2).", 0),
            ("the caller's duty.", 0),
            ("`new`'s duty, kept", 0),
            ("a long note, and\n// on its second line (R2).", 0),
            ("alive (R2).\nunsafe\n// SAFETY: the same.", 0),
            ("hm.\nunsafe\n// SAFETY: the same.", 2),
            ("the same.", 1),
            ("see RFC 2", 1),
            ("R2D2 says so", 1),
            ("", 1),
            ("alive (R2, T9).", 1),
            ("trusted (T7 to T9).", 2),
            ("a note.\n\n// R2 is of another comment", 1),
        ] {
            let text = format!("    // SAFETY: {notes}\nunsafe");
            let found = check("crates/x/src/y.rs", &text, &listed(SAFETY));
            assert_eq!(found.len(), findings, "{notes}");
            assert_eq!(check("crates/x/tests/y.rs", &text, &[]).len(), 0, "tests are not checked");
        }
    }

    #[test]
    fn a_range_of_numbers_ends_with_the_last() {
        let found = |text| ranges("a.md", text, &["T1", "T2", "C1"].map(str::to_owned)).len();
        let text = ["(`T1` to `T2`)", "T1 to T1, T1 to T3", "C1 to"];
        assert_eq!(text.map(found), [0, 2, 0]);
    }
}
