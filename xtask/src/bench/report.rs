//! What is kept of a measurement: a section of `docs/benchmarks.md`, a file for programs.
//! Invariant: writing one section of the page leaves the others as they are.

use std::collections::BTreeMap;
use std::path::Path as File;

use crate::bench::libraries::Library;
use crate::bench::paths::Path;
use crate::bench::results::Results;
use crate::failure::Result;
use crate::project;

const PAGE: &str = "docs/benchmarks.md";
const HEAD: &str = "\
# Benchmarks

What was measured last, and how to measure it again. Numbers of different sections come from different runs.
";

/// Writes one section of the page.
pub(crate) fn write_section(title: &str, body: &str) -> Result {
    let file = project::path(PAGE);
    let page = project::read(&file).unwrap_or_else(|_| HEAD.to_owned());
    project::write(&file, with_section(&page, title, body))?;
    println!("\nwrote the section {title} of {PAGE}");
    Ok(())
}

/// A page with a section put in place of the one with the same title, or added.
fn with_section(page: &str, title: &str, body: &str) -> String {
    let head = format!("## {title}\n");
    let section = format!("{head}\n{}\n", body.trim_end());
    let Some(start) = page.find(&format!("\n{head}")).map(|before| before + 1) else {
        return format!("{}\n\n{section}", page.trim_end());
    };
    let rest = &page[start + head.len()..];
    let end = rest.find("\n## ").map(|before| &rest[before..]);
    format!("{}{section}{}", &page[..start], end.unwrap_or_default())
}

/// Writes all numbers for programs.
pub(crate) fn write_json(
    file: &File,
    results: &Results,
    paths: &[Path],
    libraries: &[&Library],
) -> Result {
    project::write(file, json(results, paths, libraries))?;
    println!("\nwrote {}", file.display());
    Ok(())
}

/// Versions, costs and notes; a number that was not measured is null.
fn json(results: &Results, paths: &[Path], libraries: &[&Library]) -> String {
    let number =
        |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.3}"));
    let mut costs = Vec::new();
    for path in paths {
        for library in libraries {
            let Some(cost) = results.get(path.key, library.module) else { continue };
            costs.push(format!(
                "{{\"path\": {}, \"library\": {}, \"instructions\": {}, \"ratio\": {}, \
                 \"allocations\": {}, \"nanoseconds\": {}, \"budget\": {}}}",
                quoted(path.key),
                quoted(library.name),
                number(cost.instructions),
                number(results.ratio(path.key, library.module)),
                number(cost.allocations),
                number(cost.nanoseconds),
                number(path.budget),
            ));
        }
    }
    let notes: Vec<_> = results.notes.iter().map(|note| quoted(note)).collect();
    format!(
        "{{\n\"versions\": {},\n\"costs\": {},\n\"notes\": {}\n}}\n",
        object(&results.versions),
        list(&costs),
        list(&notes)
    )
}

fn object(entries: &BTreeMap<String, String>) -> String {
    let entries = entries.iter().map(|(key, value)| format!("{}: {}", quoted(key), quoted(value)));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

fn list(items: &[String]) -> String {
    format!("[\n  {}\n]", items.join(",\n  "))
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => quoted += &format!("\\u{:04x}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::{HEAD, json, quoted, with_section};
    use crate::bench::libraries::{FLOOR, OURS};
    use crate::bench::paths::PATHS;
    use crate::bench::results::tests::some;

    #[test]
    fn a_section_replaces_only_itself() {
        let page = with_section(HEAD, "Python", "old\n\n### more\n");
        let page = with_section(&page, "Rust", "numbers");
        let page = with_section(&page, "Python", "new");
        let wanted = "\n## Python\n\nnew\n\n## Rust\n\nnumbers\n";
        assert!(page.starts_with(HEAD) && page.ends_with(wanted), "{page}");
        assert!(!page.contains("old") && !page.contains("more"));
        let page = with_section(&page, "Rust", "others");
        assert!(page.ends_with("\nnew\n\n## Rust\n\nothers\n"), "{page}");
    }

    #[test]
    fn texts_are_quoted() {
        assert_eq!(quoted("a \"b\"\\\n"), r#""a \"b\"\\\u000a""#);
    }

    #[test]
    fn every_measured_path_is_written() {
        let text = json(&some(), &PATHS, &[&FLOOR, &OURS]);
        assert_eq!(text.matches("\"path\": ").count(), 2, "{text}");
        assert!(text.contains("\"instructions\": 1500.000, \"ratio\": 1.500"), "{text}");
        assert!(text.contains("\"nanoseconds\": null"), "{text}");
    }
}
