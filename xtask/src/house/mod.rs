//! The rules of the house that no other tool checks. What no file may contain is in `rules`, those for
//! SAFETY notes in `notes`, those for what pages name in `names`, the order of rooms in `rooms`, what neighbours use in `neighbours`, the checklist for a new dtype in
//! `dtypes`.

mod dtypes;
mod names;
mod neighbours;
mod notes;
mod rooms;
mod rules;

use anyhow::Result;
use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::shell::{LIBRARIES, files, line_of, report, root};
use crate::workspace;

/// Written by cbindgen, as long as the C API is.
const HEADER: &str = "crates/dlbridge-capi/include/dlbridge.h";
/// The most lines that a source file may have.
const LONGEST: usize = 500;
const SOURCES: [&str; 8] = [".rs", ".py", ".pyi", ".jl", ".h", ".c", ".cpp", ".sh"];
/// Lists the numbers that SAFETY notes cite, with the pages of neighbours.
const SAFETY: &str = "SAFETY.md";

/// Checks every file that git tracks or would track.
pub(crate) fn check() -> Result<()> {
    let read = |path: &str| std::fs::read_to_string(root().join(path)).ok();
    let (files, features) = (files()?, workspace::main_crate()?.features());
    // Pictures are no text.
    let texts: Vec<_> =
        files.into_iter().filter_map(|name| read(&name).map(|text| (name, text))).collect();
    let names = names::Names::of(&texts, &features);
    let pages = texts.iter().filter(|(name, _)| name.ends_with(SAFETY));
    let listed: Vec<_> = pages.flat_map(|(_, text)| notes::listed(text)).collect();
    let (mut findings, mut cited) = (rules::check()?, Vec::new());
    findings.extend(dtypes::check(&texts));
    findings.extend(neighbours::check(&texts));
    findings.extend(rooms::check(&texts));
    for (name, text) in &texts {
        if name.ends_with(".md") {
            findings.extend(names.check(name, text));
            findings.extend(notes::ranges(name, text, &listed));
            findings.extend(relative_links(name, text));
            findings.extend(loose_rows(name, text));
        } else {
            findings.extend(names.check(name, &names::head(text)));
            findings.extend(names.check_files(name, text));
        }
        let lines = text.lines().count();
        if SOURCES.iter().any(|end| name.ends_with(end)) && lines > LONGEST && name != HEADER {
            findings.push(format!("{name}: {lines} lines, at most {LONGEST} are allowed"));
        }
        findings.extend(notes::check(name, text, &listed));

        if LIBRARIES.iter().any(|folder| name.starts_with(folder)) {
            cited.extend(notes::numbers(text).into_iter().map(str::to_owned));
        }
    }
    let idle = listed.iter().filter(|number| !cited.contains(number));
    findings.extend(idle.map(|number| format!("{SAFETY}: no library cites {number}")));
    let readme = read("README.md").unwrap_or_default();
    let cells = readme.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let told = cells.collect::<Vec<_>>().join(" ");
    let untold = features.iter().filter(|name| !told.contains(&format!("`{name}`")));
    findings.extend(untold.map(|name| format!("README.md: no row for the feature `{name}`")));
    report(&findings)
}

/// The relative links of a page that an index shows, as `name:line: problem`: they lead nowhere there, since it shows the
/// page without the files of its package.
fn relative_links(name: &str, text: &str) -> Vec<String> {
    let folder = name.strip_suffix("/README.md").unwrap_or_default();
    let is_shown = |package: &str| !package.is_empty() && !package.contains('/');
    if folder != "python"
        && !LIBRARIES.iter().any(|one| folder.strip_prefix(one).is_some_and(is_shown))
    {
        return Vec::new();
    }
    let events = Parser::new(text).into_offset_iter();
    let links = events.filter_map(|(event, place)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some((dest_url, place))
        }
        _ => None,
    });
    let relative = links.filter(|(link, _)| !link.starts_with("https://"));
    let told = |(link, place): (_, std::ops::Range<usize>)| {
        format!("{name}:{}: a relative link to {link}", line_of(text, place.start))
    };
    relative.map(told).collect()
}

/// Rows that a blank line cut off their table: a browser shows them as a paragraph with bars.
fn loose_rows(name: &str, text: &str) -> Vec<String> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let starts = events.filter_map(|(event, place)| {
        (event == Event::Start(Tag::Paragraph) && text[place.clone()].starts_with('|'))
            .then_some(place.start)
    });
    starts.map(|at| format!("{name}:{}: a row that is in no table", line_of(text, at))).collect()
}

#[cfg(test)]
mod tests {
    use super::{loose_rows, relative_links};

    #[test]
    fn a_row_has_a_table() {
        let table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n";
        assert!(loose_rows("a.md", &format!("{table}\n{table}")).is_empty());
        let cut = format!("{table}\n| 3 | 4 |\n| 5 | 6 |\n");
        assert_eq!(loose_rows("a.md", &cut), ["a.md:5: a row that is in no table"]);
    }

    #[test]
    fn a_packed_page_has_no_relative_link() {
        let text = "[a](https://a.example)\n\n[up](upstream/README.md) ![b](b.svg)\n`[c](d)`\n";
        for name in ["extras/doctor/README.md", "python/README.md", "crates/dlbridge/README.md"] {
            let links = relative_links(name, text);
            assert_eq!(links.len(), 2, "{links:?}");
            assert_eq!(links[0], format!("{name}:3: a relative link to upstream/README.md"));
        }
        for name in [
            "README.md",
            "extras/doctor/upstream/README.md",
            "crates/dlbridge/docs/README.md",
            "crates/README.md",
        ] {
            assert!(relative_links(name, text).is_empty(), "{name}");
        }
    }

    #[test]
    fn this_project_keeps_the_rules() {
        super::check().unwrap();
    }
}
