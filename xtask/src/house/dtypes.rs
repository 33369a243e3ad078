//! The checklist for a new dtype: it has every source that knows dtypes one by one.

/// The page, and the heading of its list.
const PAGE: &str = "docs/where.md";
const HEADING: &str = "\n## Add a dtype\n";
/// Where sources are looked for; their endings.
const PLACES: &str = "crates/ extras/ fuzz/src/ julia/DLBridge/ python/dlbridge/ python/src/";
const ENDINGS: [&str; 4] = [".rs", ".py", ".pyi", ".jl"];
/// Parts of the names of four dtypes. A source that has two of them outside of comments and tests knows
/// dtypes one by one.
const DTYPES: [&[&str]; 4] = [
    &["f64", "float64"],
    &["bf16", "bfloat"],
    &["complex", "c64"],
    &["float8", "f8e4m3", "f8_e4m3"],
];

/// What the list lacks, and what it has that knows no dtype.
pub(crate) fn check(files: &[(String, String)]) -> Vec<String> {
    let page = files.iter().find(|(name, _)| name == PAGE).map_or("", |(_, text)| text);
    let list = page.split(HEADING).nth(1).unwrap_or_default();
    let listed: Vec<_> = list.split('`').skip(1).step_by(2).filter(|it| is_source(it)).collect();
    let mut findings = Vec::new();
    for (name, text) in files.iter().filter(|(name, _)| is_source(name)) {
        let (is_listed, known) = (listed.contains(&&name[..]), known(text));
        if known > 1 && !is_listed {
            findings.push(format!("{name}: it knows dtypes, but {PAGE} does not list it"));
        }
        if known == 0 && is_listed {
            findings.push(format!("{PAGE}: {name} knows no dtype"));
        }
    }
    findings
}

fn is_source(name: &str) -> bool {
    let is_tested = ["/tests/", "/test/", "/examples/"].iter().any(|part| name.contains(part));
    let is_here = PLACES.split(' ').any(|place| name.starts_with(place));
    is_here && !is_tested && ENDINGS.iter().any(|end| name.ends_with(end))
}

/// How many of [`DTYPES`] a source names.
fn known(text: &str) -> usize {
    let code = text.split("#[cfg(test)]\nmod").next().unwrap_or_default();
    let is_code = |line: &&str| !["//", "#", "/*", "*"].iter().any(|start| line.starts_with(start));
    let lines = code.lines().map(str::trim_start).filter(is_code);
    let code = lines.collect::<Vec<_>>().join("\n").to_lowercase();
    DTYPES.iter().filter(|names| names.iter().any(|name| code.contains(name))).count()
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_list_has_the_sources_that_know_two_dtypes() {
        let page = "## Other\n\n## Add a dtype\n\n| `crates/x/src/a.rs` | `python/src/idle.rs` |\n";
        let sources = [
            ("docs/where.md", page),
            ("crates/x/src/a.rs", "BF16 => C64"),
            ("crates/x/src/b.rs", "f64\n\"complex64\""),
            ("crates/x/src/one.rs", "f64\n// complex\n#[cfg(test)]\nmod tests { bf16 }"),
            ("crates/x/tests/c.rs", "f64 bf16"),
            ("python/src/idle.rs", "fn f() {}"),
        ];
        let sources = sources.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(
            check(&sources),
            [
                "crates/x/src/b.rs: it knows dtypes, but docs/where.md does not list it",
                "docs/where.md: python/src/idle.rs knows no dtype",
            ]
        );
    }
}
