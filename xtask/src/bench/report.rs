//! What is kept of a measurement: a section of `docs/benchmarks.md`, a file for programs.
//! Invariant: writing one section of the page leaves the others as they are.

use std::collections::BTreeMap;
use std::path::Path as File;

use crate::bench::chart;
use crate::bench::libraries::Library;
use crate::bench::paths::Path;
use crate::bench::results::Results;
use crate::failure::Result;
use crate::project;

const PAGE: &str = "docs/benchmarks.md";
const HEAD: &str = "\
# Benchmarks

What was measured last, and how to measure it again: `cargo xtask bench` measures everything, `--write` keeps it
here. Numbers of different sections come from different runs. Instructions are counted and come out the same in
each run; times are of a machine that others use too, so a difference of a few percent means nothing.

![Instructions of each path in Python, as multiples of the floor, by library](benchmarks/paths.svg)

![Time of a share and of a copy in Python, by size](benchmarks/sizes-python.svg)

![Instructions of loops over a View, as multiples of a slice's or ndarray's](benchmarks/views.svg)
";

/// What is kept of a measurement.
#[derive(Debug)]
pub(crate) struct Section {
    /// Its heading.
    pub(crate) title: String,
    /// Its text and tables.
    pub(crate) body: String,
    /// The name of its chart, and the chart.
    pub(crate) chart: Option<(&'static str, String)>,
}

impl Section {
    /// Text and tables alone.
    pub(crate) fn without_chart(title: &str, body: String) -> Self {
        Self { title: title.to_owned(), body, chart: None }
    }

    /// The command that writes it: the language, and the part where there are several.
    fn command(&self) -> String {
        let title = self.title.to_lowercase();
        let (language, part) = title.split_once(": ").unwrap_or((&title, ""));
        let language = language.split('-').next_back().unwrap_or_default();
        let language = language.split(' ').next_back().unwrap_or_default();
        let part = if language == "python" && part.is_empty() { "paths" } else { part };
        format!("cargo xtask bench {language} {part}").trim_end().to_owned() + " --write"
    }
}

/// Writes a section of the page and its chart. The page's head shows some charts; the others stand
/// in their sections.
pub(crate) fn keep(section: &Section, machine: &str) -> Result {
    let Section { title, body, chart } = section;
    let mut image = String::new();
    if let Some((name, svg)) = chart {
        chart::save(name, svg)?;
        if !HEAD.contains(&format!("/{name}.svg")) {
            image = format!("![{title}](benchmarks/{name}.svg)\n\n");
        }
    }
    let command = section.command();
    let body = format!("`{command}` wrote this section. {machine}.\n\n{image}{body}");
    let file = project::path(PAGE);
    let page = project::read(&file).unwrap_or_else(|_| HEAD.to_owned());
    project::write(&file, with_section(&page, title, &body))?;
    println!("wrote the section {title} of {PAGE}");
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
    use super::{HEAD, PAGE, Section, json, quoted, with_section};
    use crate::bench::libraries::{FLOOR, OURS};
    use crate::bench::paths::PATHS;
    use crate::bench::results::tests::some;
    use crate::project;

    #[test]
    fn the_page_begins_with_the_head() {
        let page = project::read(&project::path(PAGE)).unwrap();
        assert!(page.starts_with(HEAD));
        for line in page.lines().filter(|line| line.starts_with("![")) {
            let image = line.split(['(', ')']).nth(1).unwrap();
            assert!(project::path("docs").join(image).is_file(), "{image}");
        }
    }

    #[test]
    fn a_section_names_the_command_that_writes_it() {
        let command = |title: &str| Section::without_chart(title, String::new()).command();
        assert_eq!(command("Python"), "cargo xtask bench python paths --write");
        assert_eq!(command("Rust: views"), "cargo xtask bench rust views --write");
        let free = "cargo xtask bench python threads --write";
        assert_eq!(command("Free-threaded Python: threads"), free);
        assert_eq!(command("Julia"), "cargo xtask bench julia --write");
    }

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
